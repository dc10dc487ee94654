"""The state of ``partial_fit`` as numbers, for model files: a loaded model goes on as if it had stayed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailproof.core import Array
from tailproof.core.algorithms import is_finite
from tailproof.core.losses import SOFTMAX_LOSS, get_loss
from tailproof.core.rules import get_rule
from tailproof.core.scaling import FeatureScale
from tailproof.core.sets import ALL_SPACE, get_set
from tailproof.core.sgd import PLAIN, SGDLearner
from tailproof.core.steps import get_steps
from tailproof.estimators.inputs import penalties
from tailproof.estimators.linear.drift import LEVELS, WINDOW
from tailproof.estimators.linear.partial_fit import Batch, Stream

Integers = NDArray[np.integer]
_STAGES = {"prepare", "train", "combine"}
_CANDIDATE = ("coef", "intercept", "mean_coef", "mean_intercept")


@dataclass(frozen=True, eq=False)
class SavedRows:
    """Rows that a stream keeps: dense ``values``, or data, ``indices`` and ``indptr`` of a CSR matrix."""

    values: Array
    indices: Integers
    indptr: Integers
    y: NDArray[Any]
    weights: Array


@dataclass(frozen=True, eq=False)
class SavedStream:
    """Everything that ``partial_fit`` needs to go on, but the parameters of the estimator.

    Attributes
    ----------
    why : str
    entropy, spawn_key : int, tuple of int
        Of the seed.
    seen, began_with, n_blocks : int
    dealt, updates : arrays of shape (k,)
    coef, mean_coef : arrays of shape (k, outputs, d)
    intercept, mean_intercept : arrays of shape (k, outputs)
    centre, scale, whitening : arrays
    curvature, clipping : float
    seconds : dict
        Spent so far, by stage.
    dealer, coin : tuple of int
        States of random generators.
    left : array of int
        Blocks of the next rows, already drawn.
    held_out, early : SavedRows or None
    velocity : array of shape (k, parameters) or None
        Of rules with momentum.
    memory : array or None
        Of the rule.
    ages : array of shape (k,) or None
        Updates that the averages stand for; None: all of them.
    old_errors, new_errors, windows : arrays, int
        Of the monitor of errors.
    drift : str
        The last one that it noticed.
    """

    why: str
    entropy: int
    spawn_key: tuple[int, ...]
    seen: int
    began_with: int
    n_blocks: int
    dealt: Integers
    updates: Integers
    coef: Array
    mean_coef: Array
    intercept: Array
    mean_intercept: Array
    centre: Array
    scale: Array
    whitening: Array | None
    curvature: float
    clipping: float
    seconds: dict[str, float]
    dealer: tuple[int, ...]
    coin: tuple[int, ...]
    left: Integers
    held_out: SavedRows | None
    early: SavedRows | None
    velocity: Array | None = None
    memory: Array | None = None
    ages: Array | None = None
    old_errors: Array | None = None
    new_errors: Array | None = None
    windows: int = 0
    drift: str = ""


def saved_stream(stream: Stream) -> SavedStream:
    """The state of a stream as numbers."""
    settings = stream._settings
    return SavedStream(
        why=stream.why,
        entropy=int(stream.seed.entropy),  # type: ignore[arg-type]
        spawn_key=tuple(int(key) for key in stream.seed.spawn_key),
        seen=int(stream.seen),
        began_with=int(stream._began_with),
        n_blocks=int(settings.n_blocks),
        dealt=np.asarray(stream.dealt),
        updates=np.array([state.updates for state in stream.states]),
        **{name: np.stack([getattr(state, name) for state in stream.states]) for name in _CANDIDATE},
        centre=settings.columns.centre,
        scale=settings.columns.scale,
        whitening=settings.columns.whitening,
        curvature=float(settings.curvature),
        clipping=float(getattr(settings.rule, "level", None) or 0.0),
        seconds=dict(stream.seconds),
        dealer=_numbers_of(stream.dealer._random),
        coin=_numbers_of(stream.coin),
        left=stream.dealer._left,
        held_out=_saved_rows(stream.held_out),
        early=_saved_rows(stream.early),
        velocity=_velocities(stream),
        memory=settings.rule.memory if settings.rule.memory.size else None,
        ages=stream.ages,
        old_errors=stream.monitor.quantiles,
        new_errors=stream.monitor.recent,
        windows=stream.monitor.windows,
        drift=stream.drift,
    )


def restored_stream(model: Any, saved: SavedStream) -> Stream:
    """The stream of a model from its saved state; raise a ValueError where the two do not fit."""
    settings = _settings(model, saved)
    seed = np.random.SeedSequence(saved.entropy, spawn_key=saved.spawn_key)
    _check(model, saved)
    stream = Stream(settings, len(saved.updates), saved.why, seed)
    stream._began_with, stream.seen, stream.seconds = saved.began_with, saved.seen, dict(saved.seconds)
    stream.dealt = saved.dealt.astype(np.intp)
    stream.states = [
        replace(
            state,
            updates=int(saved.updates[j]),
            passes=int(saved.updates[j] > 0 or saved.dealt[j] > 0),
            **{name: getattr(saved, name)[j].copy() for name in _CANDIDATE},
            velocity=None if saved.velocity is None else saved.velocity[j].copy(),
        )
        for j, state in enumerate(stream.states)
    ]
    _set_numbers(stream.dealer._random, saved.dealer)
    _set_numbers(stream.coin, saved.coin)
    stream.dealer._left = saved.left.astype(np.intp)
    stream.held_out = _rows_of(saved.held_out, settings)
    stream.early = _rows_of(saved.early, settings)
    stream.ages = np.asarray(saved.updates if saved.ages is None else saved.ages, dtype=np.float64)
    stream.finite = np.array([is_finite(settings.vector(state)) for state in stream.states])
    stream.drift = saved.drift
    if saved.old_errors is not None and saved.new_errors is not None:
        monitor = stream.monitor
        monitor.quantiles, monitor.recent, monitor.windows = saved.old_errors, saved.new_errors, saved.windows
    return stream


def _velocities(stream: Stream) -> Array | None:
    parts = [state.velocity for state in stream.states if state.velocity is not None]
    return np.stack(parts) if parts else None


def _settings(model: Any, saved: SavedStream) -> SGDLearner:
    outputs, d = saved.coef.shape[1:]
    task = "regression" if model._is_regression else "classification"
    loss = get_loss(model.loss, model.loss_parameter, task)
    loss = SOFTMAX_LOSS if outputs > 1 and loss.name == "log_loss" else loss
    rule = PLAIN if model.learner == "sgd" else get_rule(model.learner)
    l1, l2 = penalties(model.penalty, model.alpha, model.l1_ratio)
    return SGDLearner(
        X=np.empty((0, d)),
        y=np.empty(0),
        weights=np.empty(0),
        loss=loss,
        columns=FeatureScale(saved.centre, saved.scale, saved.whitening),
        steps=get_steps(model.step_size),
        curvature=saved.curvature,
        n_blocks=saved.n_blocks,
        outputs=outputs,
        start_coef=np.zeros((outputs, d)),
        start_intercept=np.zeros(outputs),
        average=bool(model.average),
        implicit=model.update == "implicit",
        batch_size=int(model.batch_size),
        l1=l1,
        l2=l2,
        constraint=ALL_SPACE if model.constraint is None else get_set(model.constraint),
        fit_intercept=bool(model.fit_intercept),
        rule=rule.resumed(saved.clipping, np.empty(0) if saved.memory is None else saved.memory, d),
    )


def _check(model: Any, saved: SavedStream) -> None:
    """Shapes and values that a stream of this model has."""
    k, (outputs, d) = len(saved.updates), saved.coef.shape[1:]
    shapes = {
        "coef": (k, outputs, d), "mean_coef": (k, outputs, d), "intercept": (k, outputs),
        "mean_intercept": (k, outputs), "dealt": (k,), "centre": (d,), "scale": (d,),
    }  # fmt: skip
    fits = all(getattr(saved, name).shape == shape for name, shape in shapes.items())
    turn = saved.whitening
    fits &= turn is None or (turn.shape == (d, d) and turn.dtype == np.float64)
    fits &= d == model.n_features_in_ and outputs == len(np.atleast_2d(model.coef_))
    parameters = outputs * (d + 1)
    fits &= saved.velocity is None or saved.velocity.shape == (k, parameters)
    fits &= saved.memory is None or saved.memory.shape == (2 + 2 * parameters,)
    fits &= (get_rule(model.learner).has_velocity) == (saved.velocity is not None)
    extra = [part for part in (saved.velocity, saved.memory) if part is not None]
    fits &= all(part.dtype == np.float64 and np.isfinite(part).all() for part in extra)
    numbers = [getattr(saved, name) for name in (*_CANDIDATE, "centre", "scale")]
    fits &= all(array.dtype == np.float64 and np.isfinite(array).all() for array in numbers)
    fits &= bool((saved.scale > 0).all()) and saved.seconds.keys() <= _STAGES
    fits &= bool((saved.updates >= 0).all()) and saved.left.ndim == 1 and len(saved.left) < k
    fits &= bool(((saved.left >= 0) & (saved.left < k)).all()) and 0 < saved.curvature < np.inf
    fits &= saved.ages is None or (saved.ages.shape == (k,) and bool((saved.ages >= 0).all()))
    fits &= _has_errors(saved)
    for rows in (saved.held_out, saved.early):
        fits &= rows is None or _fit_together(rows, d)
    if not fits:
        raise ValueError("the state of its partial_fit does not fit the model")


def _has_errors(saved: SavedStream) -> bool:
    """Whether the state of the monitor is one."""
    old, new = saved.old_errors, saved.new_errors
    if old is None or new is None:
        return True
    sizes = old.shape == (LEVELS.size * (saved.windows > 0),) and new.ndim == 1 and new.size < WINDOW
    return bool(sizes and saved.windows >= 0 and np.isfinite(old).all() and np.isfinite(new).all())


def _fit_together(rows: SavedRows, d: int) -> bool:
    n, plain = len(rows.y), rows.indptr.size == 0
    shape = rows.values.shape == (n, d) if plain else rows.values.shape == rows.indices.shape
    inside = plain or (rows.indices.size == 0 or (rows.indices.min() >= 0 and rows.indices.max() < d))
    numbers = (rows.values, rows.y, rows.weights)
    return bool(
        shape and inside and len(rows.weights) in (0, n) and all(np.isfinite(v).all() for v in numbers)
    )


def _saved_rows(rows: Batch | None) -> SavedRows | None:
    if rows is None:
        return None
    nothing = np.empty(0, dtype=np.int64)
    if sparse.issparse(rows.X):
        X = sparse.csr_array(rows.X)
        return SavedRows(X.data, X.indices, X.indptr, rows.y, rows.weights)
    return SavedRows(np.asarray(rows.X), nothing, nothing, rows.y, rows.weights)


def _rows_of(saved: SavedRows | None, settings: SGDLearner) -> Batch | None:
    if saved is None:
        return None
    X: Any = saved.values
    if saved.indptr.size:
        d = settings.columns.centre.size
        X = sparse.csr_array((saved.values, saved.indices, saved.indptr), shape=(len(saved.y), d))
        X.check_format(full_check=True)
    return Batch(X, saved.y, saved.weights, settings.loss, settings.outputs)


def _numbers_of(random: np.random.Generator) -> tuple[int, ...]:
    state: Any = random.bit_generator.state
    return (state["state"]["state"], state["state"]["inc"], state["has_uint32"], state["uinteger"])


def _set_numbers(random: np.random.Generator, numbers: tuple[int, ...]) -> None:
    state, inc, has_uint32, uinteger = numbers
    random.bit_generator.state = {
        "bit_generator": "PCG64", "state": {"state": state, "inc": inc},
        "has_uint32": has_uint32, "uinteger": uinteger,
    }  # fmt: skip
