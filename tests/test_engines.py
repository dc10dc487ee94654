import threading

import joblib
import numpy as np
import pytest

from tailproof.engines.local import LocalEngine
from tailproof.types import Engine


@pytest.mark.parametrize("jobs", [None, 1, 2, -1])
def test_results_keep_the_order_of_the_tasks(jobs):
    engine = LocalEngine(jobs)
    assert isinstance(engine, Engine)
    tasks = list(range(37))
    assert engine.run(lambda task: task**2, tasks) == [task**2 for task in tasks]
    assert engine.run(lambda task: task, iter(tasks)) == tasks
    assert engine.run(lambda task: task, []) == []


@pytest.mark.parametrize("jobs", [1, 2, -1])
def test_tasks_share_memory(jobs):
    seen = np.zeros(8)
    LocalEngine(jobs).run(lambda j: seen.__setitem__(j, j + 1), range(8))
    assert seen.tolist() == list(range(1, 9))


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_come_through(jobs):
    def fail(task):
        raise ValueError(f"task {task} is bad")

    with pytest.raises(ValueError, match="is bad"):
        LocalEngine(jobs).run(fail, range(4))


def test_none_is_serial_unless_joblib_says_otherwise():
    main = threading.get_ident()
    assert set(LocalEngine().run(lambda _: threading.get_ident(), range(4))) == {main}
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert LocalEngine().run(abs, [-1, 2]) == [1, 2]
        assert main not in LocalEngine().run(lambda _: threading.get_ident(), range(4))
