import threading

import joblib
import pytest

from tailproof.core.algorithms import Engine
from tailproof.estimators.parallel import JoblibEngine


@pytest.mark.parametrize("jobs", [1, 2])
def test_joblib_runs_where_it_is_told_to(jobs):
    engine, names = JoblibEngine(), set()
    assert isinstance(engine, Engine)

    def work(task):
        names.add(threading.current_thread().name)
        return task**2

    with joblib.parallel_config(backend="threading", n_jobs=jobs):
        assert engine.run(work, range(37)) == [task**2 for task in range(37)]
    assert (threading.current_thread().name in names) == (jobs == 1)
