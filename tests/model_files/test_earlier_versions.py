"""Model files of earlier versions load and predict as they did."""

import json
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.utils.fixes import parse_version

import tailproof as tp

FOLDER = Path(__file__).parent / "saved_by_0_1_0"
PREDICTIONS = json.loads((FOLDER / "predictions.json").read_text())


@pytest.mark.parametrize("name", PREDICTIONS)
def test_a_file_of_before_the_packages_loads(name):
    if name == "meta" and parse_version(sklearn.__version__) < parse_version("1.7"):
        pytest.skip("it holds a LinearRegression with a parameter that came with scikit-learn 1.7")
    model = tp.load(FOLDER / f"{name}.model")
    expected, predicted = PREDICTIONS[name], model.predict(np.load(FOLDER / "rows.npy"))
    if isinstance(expected[0], str):
        assert predicted.tolist() == expected
    else:
        np.testing.assert_allclose(predicted, expected, rtol=1e-12)
    assert str(model.report_)


def test_a_file_of_before_intervals_says_so_in_one_sentence():
    model, rows = tp.load(FOLDER / "robust.model"), np.load(FOLDER / "rows.npy")
    assert model.summary().notes == (
        "This model has no intervals: it comes from a version that kept none, so fit it again.",
    )
    assert np.array_equal(model.summary().estimate, model.coef_)
    with pytest.raises(ValueError, match="fit it again"):
        model.predict_interval(rows)
