"""Tuning: every field has its reason and is read, and a study varies one without editing modules."""

import inspect
import pathlib
import re
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from sklearn.base import clone

from tailproof import RobustRegressor
from tailproof.estimators.robust_regressor import tuning
from tailproof.estimators.robust_regressor.tuning import DEFAULT, Tuning

NAMES = [field.name for field in fields(Tuning)]


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    return X, X.sum(axis=1) + rng.standard_t(3, 300)


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_has_its_reason_and_a_reader(name):
    assert re.search(rf"^ {{4}}[\w, ]*\b{name}\b[\w, ]* : ", Tuning.__doc__, re.MULTILINE)
    folder = pathlib.Path(inspect.getfile(tuning)).parent
    readers = [path for path in folder.glob("*.py") if path.name != "tuning.py"]
    assert any(re.search(rf"tuning\.{name}\b", path.read_text(encoding="utf-8")) for path in readers)


def test_a_study_varies_one_choice():
    class Cautious(RobustRegressor):
        _tuning = replace(DEFAULT, convinced=1e9, evidence_rows=10**9)

    X, y = data()
    cautious = clone(Cautious(random_state=0)).fit(X, y)
    assert "untruncated" in cautious.report_.why
    assert RobustRegressor(random_state=0).fit(X, y).report_.why != cautious.report_.why


def test_the_signature_does_not_grow_and_the_record_is_frozen():
    assert set(RobustRegressor().get_params()) == {
        "loss",
        "loss_parameter",
        "candidates",
        "delta",
        "fit_intercept",
        "drop_glitches",
        "contamination",
        "random_state",
    }
    with pytest.raises(FrozenInstanceError):
        DEFAULT.folds = 3
