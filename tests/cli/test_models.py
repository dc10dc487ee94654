"""Models and engines by name: each fits."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import tailproof as tp
from tailproof.cli import clusters, models
from tailproof.cli.models import ENGINES, MODELS
from tailproof.tables.dialect import Dialect
from tailproof.tables.model import OptionError, prepare
from tailproof.tables.reading import read_sample

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 2))
TABLE = pa.table(
    {
        "a": X[:, 0],
        "b": X[:, 1],
        "cost": X.sum(axis=1) + rng.standard_t(3, 300),
        "sold": np.where(X[:, 0] > 0, "y", "n"),
    }
)
ROWS = {
    "regression": prepare(TABLE, "cost", leave_out=["sold"]),
    "classification": prepare(TABLE, "sold", leave_out=["cost"]),
}


# Of a few rows, whose candidates go on moving: not what this test is about.
@pytest.mark.filterwarnings("ignore:the candidates had not settled:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("task", "name"), [(task, name) for task in MODELS for name in MODELS[task]])
def test_models(task, name):
    rows = ROWS[task]
    model = MODELS[task][name](0).fit(rows.X, rows.y)
    assert model.predict(rows.X).shape == rows.y.shape


def fit_by(engine, task, monkeypatch):
    monkeypatch.setattr(models, "_PIECE", 100)  # three pieces
    cls = {"regression": tp.DCSGDRegressor, "classification": tp.DCSGDClassifier}[task]
    rows = ROWS[task]
    model = ENGINES[engine](cls(k=3, max_iter=2, random_state=0), rows, 0)
    assert model.score(rows.X, rows.y) > 0.3
    assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize("task", ROWS)
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "spark"])
def test_engines(engine, task, monkeypatch):
    fit_by(engine, task, monkeypatch)


def the_same_anywhere(engine):
    """The default method on a cluster is that of this machine: the order of rows is that of the file."""
    rows = ROWS["regression"]
    here, there = (
        ENGINES[name](tp.RobustRegressor(random_state=0), rows, 0).predict(rows.X)
        for name in ("local", engine)
    )
    np.testing.assert_allclose(there, here, rtol=1e-9)


def test_the_default_method_on_dask_is_that_of_this_machine(client):
    the_same_anywhere("dask")


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_the_default_method_on_spark_is_that_of_this_machine(spark):
    the_same_anywhere("spark")


# PySpark knows pandas up to version 2; nothing of pandas is used here.
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_spark(monkeypatch, spark):
    # As if there were no session: the one that is made then is that of the test run, with more settings.
    monkeypatch.setattr(type(spark), "getActiveSession", staticmethod(lambda: None))
    fit_by("spark", "classification", monkeypatch)


class TestFilesReadByTheCluster:
    """Half of the rows are in each of two files; some have no target."""

    SETTINGS = {"k": 3, "max_iter": 2, "random_state": 0}  # noqa: RUF012, never changed

    @pytest.fixture
    def files(self, tmp_path):
        names = np.array(["north", "south", "west"])[np.arange(300) % 3]
        cost = pa.array(TABLE.column("cost").to_numpy(), mask=np.arange(300) % 10 == 0)
        table = TABLE.set_column(2, "cost", cost).append_column("where", pa.array(names))
        for part in range(2):
            parquet.write_table(table.slice(150 * part, 150), tmp_path / f"{part}.parquet", row_group_size=40)
        return sorted(tmp_path.iterdir())

    def prepared(self, files, target, drop):
        read = read_sample(files, Dialect(), 200)
        rows = prepare(read.table, target, leave_out=[drop])
        assert 100 < len(rows.y) <= 200
        return rows, clusters.numbers_of(rows, files[0])

    def fit_by(self, engine, files, address=""):
        assert clusters.can_be_read_there(files)
        assert clusters.rows_of(files) == 300
        rows, numbers = self.prepared(files, "cost", "sold")
        model = clusters.FITS[engine](tp.DCSGDRegressor(**self.SETTINGS), numbers, files, address)
        assert model.report_.block_sizes.sum() == 270  # without those that have no target
        assert model.score(rows.X, rows.y) > 0.3
        assert not hasattr(model, "feature_names_in_")

    def test_dask_at_an_address(self, files, dask_cluster, monkeypatch):
        monkeypatch.setattr(clusters, "_PIECE", 50)
        assert [groups for _, groups in clusters._pieces(files)] == [[0, 1], [2, 3]] * 2
        self.fit_by("dask", files, dask_cluster.scheduler.address)

    def test_classes_on_dask(self, files, client):
        rows, numbers = self.prepared(files, "sold", "cost")
        model = clusters.FITS["dask"](tp.DCSGDClassifier(**self.SETTINGS), numbers, files, "")
        assert model.classes_.tolist() == ["n", "y"]
        assert model.report_.block_sizes.sum() == 300
        assert model.score(rows.X, rows.y) > 0.8

    @pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
    def test_spark(self, files, spark):
        self.fit_by("spark", files)

    def test_no_scheduler_at_an_address(self, files, monkeypatch):
        distributed = pytest.importorskip("distributed")

        def nobody(*address, **options):
            raise OSError("timed out")

        monkeypatch.setattr(distributed, "Client", nobody)
        with pytest.raises(OptionError, match=r"--cluster tcp://127.0.0.1:1: there is no"):
            self.fit_by("dask", files, "tcp://127.0.0.1:1")

    def test_strings_that_are_numbers_are_read_here(self, files):
        strings = pa.array([f"{value:.3f}" for value in TABLE.column("b").to_pylist()])
        parquet.write_table(TABLE.set_column(1, "b", strings), files[0])
        assert not clusters.can_be_read_there(files)  # the other file has no such column
        assert clusters.can_be_read_there(files[:1])
        assert self.prepared(files[:1], "cost", "sold")[1] is None

    def test_other_files_are_read_here(self, tmp_path):
        (tmp_path / "a.csv").write_text("a,b\n1,2\n")
        assert not clusters.can_be_read_there([tmp_path / "a.csv"])
        assert not clusters.can_be_read_there([])
