"""Parts by name."""

import pytest

from tailproof.core.lookup import Registry, lookup
from tailproof.core.means import MEANS
from tailproof.core.merge import MERGES

PARTS = {"red": 1, "blue": 2}


@pytest.mark.parametrize("name", ["green", None, 3])
def test_unknown_names_raise_a_list_of_the_known(name):
    for find in (lambda: lookup("colour", name, PARTS), lambda: Registry("colour", PARTS)[name]):
        with pytest.raises(ValueError, match=r"colour must be one of \['blue', 'red'\]; got"):
            find()


def test_a_registry_is_a_dict():
    registry = Registry("colour", PARTS)
    assert registry == PARTS
    assert registry["red"] == 1
    assert "green" not in registry
    assert registry.get("green") is None


def test_means_and_merges_name_their_parameter():
    with pytest.raises(ValueError, match="mean must be one of"):
        MEANS["midrange"]
    with pytest.raises(ValueError, match="merge must be one of"):
        MERGES["midrange"]
