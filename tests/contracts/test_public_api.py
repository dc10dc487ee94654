import inspect

import tailproof


def test_every_public_name_exists_and_is_documented():
    for name in tailproof.__all__:
        member = getattr(tailproof, name)
        assert name == "__version__" or inspect.getdoc(member)


def test_all_is_sorted_and_complete():
    assert list(tailproof.__all__) == sorted(tailproof.__all__)
    modules = {name for name in tailproof.__all__ if inspect.ismodule(getattr(tailproof, name))}
    assert {"means", "merge", "partition", "theory"} <= modules
