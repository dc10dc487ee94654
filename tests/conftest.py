"""Profiles of hypothesis, and what tests share: a Dask cluster for a file, a Spark session for the run."""

import gc
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# Derandomised, so that a red run can be repeated; `make test-thorough` takes twelve times the examples.
for name, examples in {"tailproof": 40, "thorough": 500}.items():
    settings.register_profile(
        name,
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("tailproof")

# Files that share something slow to make: all tests of a group go to one worker.
GROUPS = {
    "cli/test_app.py": "commands",
    "cli/test_models.py": "spark",
    "cli/test_pages.py": "pages",
    "cli/test_paper_commands.py": "paper commands",
    "contracts/test_imports.py": "imports",
    "data/test_dask.py": "dask",
    "data/test_dask_estimators.py": "dask",
    "data/test_spark.py": "spark",
    "native/test_library.py": "library",
    "paper/test_runs.py": "paper runs",
}


def pytest_sessionstart():
    """What is imported and collected stays to the end: the garbage collector need not look at it."""
    gc.disable()


def pytest_collection_finish():
    """Now there will be garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests one by one to whoever is free, groups as a whole."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return GROUPS.get(nodeid.partition("::")[0].partition("tests/")[2], nodeid)

        def mark_test_complete(self, node, item_index, duration=0):
            """Forget what is done: the base class counts through all of it again after every test."""
            super().mark_test_complete(node, item_index, duration)
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(self.assigned_work[node][scope].values()):
                del self.assigned_work[node][scope]

    return GroupScheduling(config, log)


# A cluster that waits takes a tenth of a core, more than it takes to start one: it ends with the file.
@pytest.fixture(scope="module")
def dask_cluster():
    """Two processes on the loopback interface, no dashboard, no fixed port."""
    distributed = pytest.importorskip("distributed", reason="needs pip install 'tailproof[dask]'")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            worker_dashboard_address=None,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(dask_cluster):
    """The cluster's client, the current one for the time of a test."""
    with dask_cluster.as_current():
        yield dask_cluster


@pytest.fixture(scope="session")
def spark():
    pytest.importorskip("pyspark", reason="needs pip install 'tailproof[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none on PATH")
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(Path(__file__).parent / "helpers"), prepend=os.pathsep)
        session = (
            SparkSession.builder.master("local[2, 4]")  # as on a cluster, a task may fail and run again
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.python.daemon.module", "spark_daemon")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.log.level", "OFF")
            # Java for a minute: what its second compiler, threads of its collector and code for each query
            # cost never comes back.
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.sql.codegen.wholeStage", "false")
            .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
            .config("spark.sql.shuffle.partitions", "4")
            .getOrCreate()
        )
        yield session
        session.stop()
