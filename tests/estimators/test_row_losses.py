import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, RidgeClassifier
from sklearn.metrics import accuracy_score, hinge_loss, log_loss, mean_absolute_error, mean_poisson_deviance
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from tailproof.core.losses import LOSSES
from tailproof.estimators.row_losses import (
    ROW_LOSSES,
    LossError,
    ScoreTask,
    auto_loss,
    row_losses,
    score_rows,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 2))
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0]))
LABELS = np.array(["a", "b", "c"])[(X + 0.3 * RNG.standard_normal((300, 2)) > 0).sum(axis=1)]


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_every_loss_is_one_finite_number_a_row(name):
    task = LOSSES[name].task if name in LOSSES else "classification"
    model, y = (PoissonRegressor(), COUNTS + 1.0) if task == "regression" else (LogisticRegression(), LABELS)
    found = row_losses(model.fit(X, y), X, y, name)
    assert found.shape == (300,)
    assert np.isfinite(found).all()


def test_against_scikit_learn():
    line = LinearRegression().fit(X, COUNTS)
    assert np.isclose(
        row_losses(line, X, COUNTS, "absolute_error").mean(), mean_absolute_error(COUNTS, line.predict(X))
    )
    poisson = PoissonRegressor().fit(X, COUNTS)
    constant = DummyRegressor(strategy="constant", constant=1.0).fit(X, COUNTS)
    gap = row_losses(poisson, X, COUNTS, "poisson").mean() - row_losses(constant, X, COUNTS, "poisson").mean()
    deviances = [mean_poisson_deviance(COUNTS, model.predict(X)) for model in (poisson, constant)]
    assert np.isclose(2 * gap, deviances[0] - deviances[1])
    model = LogisticRegression().fit(X, LABELS)
    assert np.isclose(row_losses(model, X, LABELS).mean(), log_loss(LABELS, model.predict_proba(X)))
    assert np.isclose(
        1 - row_losses(model, X, LABELS, "zero_one").mean(), accuracy_score(LABELS, model.predict(X))
    )
    two = LABELS != "c"
    machine = LinearSVC().fit(X[two], LABELS[two])
    margins = machine.decision_function(X[two])
    assert np.isclose(
        row_losses(machine, X[two], LABELS[two], "hinge").mean(), hinge_loss(LABELS[two], margins)
    )


def test_several_outputs_are_averaged():
    Y = np.column_stack([COUNTS, 2 * COUNTS])
    model = LinearRegression().fit(X, Y)
    expected = ((model.predict(X) - Y) ** 2 / 2).mean(axis=1)
    assert np.allclose(row_losses(model, X, Y), expected)


def test_automatic_loss():
    kinds = [LinearRegression(), LogisticRegression(), RidgeClassifier()]
    assert [auto_loss(model) for model in kinds] == ["squared_error", "log_loss", "zero_one"]


def test_unseen_labels():
    model = LogisticRegression().fit(X[LABELS != "c"], LABELS[LABELS != "c"])
    with pytest.raises(LossError, match="has not seen"):
        row_losses(model, X, LABELS)


@pytest.mark.parametrize(
    ("model", "target", "loss", "match"),
    [
        (
            LinearRegression(),
            COUNTS,
            "log_loss",
            "needs an estimator with predict_proba; LinearRegression has",
        ),
        (
            DecisionTreeClassifier(),
            LABELS,
            "hinge",
            "needs an estimator with decision_function; DecisionTree",
        ),
        (RidgeClassifier(), LABELS, "squared_error", "needs targets that are numbers"),
        (LinearRegression(), -1.0 - COUNTS, "poisson", "needs targets that are not negative"),
        (LinearRegression(), 0.0 * COUNTS, "gamma", "needs positive targets"),
    ],
)
def test_losses_that_are_not_for_the_estimator_or_the_targets(model, target, loss, match):
    with pytest.raises(LossError, match=match):
        score_rows(ScoreTask(model.fit(X, target), X, target, loss))


def test_failures_are_results_but_bad_losses_are_errors():
    line = LinearRegression().fit(X, COUNTS)
    assert score_rows(ScoreTask(line, X[:, :1], COUNTS, "auto")).error is not None
    assert score_rows(ScoreTask(None, X, COUNTS, "auto", RuntimeError())).losses.size == 0
    with pytest.raises(LossError):
        score_rows(ScoreTask(line, X, COUNTS, lambda y, p: 1.0))
