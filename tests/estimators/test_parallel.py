import threading

import joblib
import numpy as np
import pytest

from tailproof.core.algorithms import Engine
from tailproof.estimators import parallel
from tailproof.estimators.parallel import LocalEngine


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


def threads_of(engine):
    return set(engine.run(lambda _: threading.get_ident(), range(4)))


def test_none_is_serial_for_little_work_and_all_cores_for_more(monkeypatch):
    main = threading.get_ident()
    monkeypatch.setattr(parallel, "cpu_count", lambda: 2)
    assert threads_of(LocalEngine()) == {main}
    assert main not in threads_of(LocalEngine(cells=10**7))
    assert threads_of(LocalEngine(n_jobs=1, cells=10**7)) == {main}


def test_inside_a_job_of_joblibs_none_is_serial(monkeypatch):
    monkeypatch.setattr(parallel, "cpu_count", lambda: 2)
    inside = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(lambda: threads_of(LocalEngine(cells=10**7)) == {threading.get_ident()})()
        for _ in range(2)
    )
    assert inside == [True, True]


def test_joblib_may_ask_for_threads():
    main = threading.get_ident()
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert LocalEngine().run(abs, [-1, 2]) == [1, 2]
        assert main not in LocalEngine().run(lambda _: threading.get_ident(), range(4))
