"""Narrow tables are fitted with one thread of linear algebra; afterwards the process has all again."""

import pytest
from threadpoolctl import threadpool_info

from tailproof.cli.models import no_idle_threads


def threads():
    return {
        library["filepath"]: library["num_threads"]
        for library in threadpool_info()
        if "blas" in library["user_api"]
    }


def test_narrow_tables_have_one_thread_of_algebra_until_they_are_fitted():
    before = threads()
    with no_idle_threads(columns=3):
        assert set(threads().values()) == {1}
    assert threads() == before


def test_they_are_given_back_after_an_error():
    before = threads()
    with pytest.raises(KeyboardInterrupt), no_idle_threads(columns=3):
        raise KeyboardInterrupt
    assert threads() == before


def test_wide_tables_keep_theirs():
    before = threads()
    with no_idle_threads(columns=1_000):
        assert threads() == before
