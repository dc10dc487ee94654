"""Linear algebra in one thread, as long as somebody wants it."""

import threadpoolctl

from tailproof.data.one_thread import one_thread


def threads():
    return {
        library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"
    }


def test_the_last_one_gives_threads_back():
    """Fits in several threads do not end in the order in which they begin."""
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        assert threads() == {1}
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == {2}
        with one_thread():
            assert threads() == {1}
        assert threads() == {2}
