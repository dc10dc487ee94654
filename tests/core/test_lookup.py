import sys

import pytest

from tailproof.core.lookup import optional


def test_an_installed_package_is_returned():
    import json

    assert optional("json", extra="cli") is json


@pytest.mark.parametrize("module", ["absent_package", "absent_package.part"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(module):
    with pytest.raises(ImportError, match=r"absent_package.*pip install 'tailproof\[dask\]'$"):
        optional(module, extra="dask")


def test_a_missing_dependency_of_a_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "markupsafe", None)
    for name in [name for name in sys.modules if name.split(".")[0] == "jinja2"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="markupsafe"):
        optional("jinja2", extra="cli")
