"""Fit a RobustRegressor on data read in pieces: files, chunks, Dask, Spark.

The rows that would make the choice in memory make it here. The levels that they chose are then fitted on all
rows, with Hessians of a random sample and the gradients of two or three passes, which bring the means for the
recentring along (:mod:`tailproof.data.robust_passes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.inference import CoefficientErrors
from tailproof.core.losses import Loss
from tailproof.data.first_look import Survey
from tailproof.data.fit import DataSource
from tailproof.data.random_sample import RandomSample, RowNumbers
from tailproof.data.readers.batches import Reading
from tailproof.data.readers.refusals import no_row
from tailproof.data.robust_passes import AllRows, RowsToChooseBy
from tailproof.estimators.robust_regressor.candidates import RegressionTask
from tailproof.estimators.robust_regressor.compared import few_rows, rows_to_compare, sample_key, steps_of
from tailproof.estimators.robust_regressor.estimator import RobustRegressor
from tailproof.estimators.robust_regressor.tuning import Tuning
from tailproof.reports.fit_report import Clock

_SAMPLE_BYTES = 2**28  # where columns are many
_SURPLUS = 6.0  # standard deviations of the number of rows drawn: too few once in a billion fits


def fit_robust_in_pieces(
    model: RobustRegressor, source: DataSource, loss: Loss, seed: np.random.SeedSequence, reading: Reading
) -> None:
    """Fit a RobustRegressor; up to the size of the sample it is the fit in memory.

    Parameters
    ----------
    model : RobustRegressor
    source : DataSource
    loss : Loss
    seed : SeedSequence
    reading : Reading
    """
    clock = Clock()
    with clock("sample"):
        numbers = _row_numbers(source, reading.batch_rows)
        wanted = sample_rows(source.width, model._tuning)
        if numbers.total > wanted and _uses_all_rows(source, reading):
            _check_model(model, loss, source.width, wanted)
        steps = steps_of(*rows_to_compare(source.width, True, model._tuning))
        sample = draw_sample(source, numbers, wanted, steps, seed)
        if not sample.complete:
            _check_model(model, loss, source.width, wanted)
    everything: list[AllRows] = []

    def all_rows(task: RegressionTask, glitches: Any, used: NDArray[np.intp]) -> AllRows:
        far = glitches if model.drop_glitches else None
        everything.append(
            AllRows(source.engine, sample.numbers, task, sample.rows_to_choose_by(used), far, clock)
        )
        return everything[0]

    model._fit(sample.X, sample.y, sample.weights, seed, None if sample.complete else all_rows)
    for rows in everything:
        _keep_errors(model, rows)
    _report(model, source, sample, everything, clock)


def _keep_errors(model: RobustRegressor, rows: AllRows) -> None:
    """Errors of coefficients that were fitted on all rows: the sample's, for so many more of them."""
    if rows.kept:
        return
    share, more = math.sqrt(rows.task.size / rows.size), rows.size - rows.task.size

    def of_all(errors: CoefficientErrors) -> CoefficientErrors:
        return replace(errors, factor=errors.factor * share, freedom=errors.freedom + more)

    model._amend("coefficient_errors_", of_all)


def _report(
    model: RobustRegressor, source: DataSource, sample: Sample, everything: list[AllRows], clock: Clock
) -> None:
    report = model.report_
    seconds = {"sample": clock.seconds["sample"]} | report.seconds
    remarks = report.remarks
    if everything:
        seconds["all rows"] = clock.seconds["all rows"]
        seconds["choice"] -= seconds["all rows"]
        remarks = everything[0].remarks()
        remarks += tuple(remark for remark in report.remarks if remark not in remarks)
    model.report_ = replace(
        report,
        glitches=sample.places[report.glitches],
        leading_rows=None if report.leading_rows is None else sample.places[report.leading_rows],
        seconds=seconds,
        dropped_rows=sample.dropped,
        data=source.text,
        remarks=remarks,
        skipped_files=source.skipped(),
    )


def sample_rows(width: int, tuning: Tuning) -> int:
    """Rows to choose by: fewer where columns are many, but enough for fits without penalties."""
    return max(min(tuning.compared_rows, _SAMPLE_BYTES // (8 * width)), tuning.ridge_below * (width + 1))


def _uses_all_rows(source: DataSource, reading: Reading) -> bool:
    """Whether it is known before a look that none is left out; arrays may come with weights of zero."""
    return source.names is not None and not reading.weight and not reading.drop


def _check_model(model: RobustRegressor, loss: Loss, width: int, wanted: int) -> None:
    """Refuse what all rows would have to be in memory for."""
    instead = f"more than {wanted:,} rows in pieces"
    if loss.link == "log":
        raise ValueError(
            f"RobustRegressor(loss={loss.name!r}) does not take {instead}: take "
            f"DCSGDRegressor({loss.name!r}), or fit a sample of the rows in memory"
        )
    if model.contamination is not None:
        raise ValueError(
            f"RobustRegressor(contamination={model.contamination!r}) does not take {instead}: leave it out, "
            "or fit a sample of the rows in memory"
        )
    if model.candidates != "linear":
        raise ValueError(
            f"RobustRegressor takes no candidates but 'linear' for {instead}: leave them out, or fit a "
            "sample of the rows in memory"
        )
    if width > model._tuning.gram_columns:
        raise ValueError(
            f"RobustRegressor takes at most {model._tuning.gram_columns:,} columns for {instead}; there are "
            f"{width:,}: take DCSGDRegressor"
        )


def _row_numbers(source: DataSource, batch_rows: int) -> RowNumbers:
    counts = source.piece_rows
    if counts is None:
        counts = tuple(0 if seen is None else seen.rows for seen in source.engine.survey(Survey(1)))
    return RowNumbers(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), batch_rows)


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows at random, in the order of the data.

    Attributes
    ----------
    X, y : arrays
    weights : array or None
    places : array of int
        Of the rows in the data.
    numbers : RowNumbers
        Of all rows, now that it is known which are left out.
    dropped : int
        Rows of the data that were left out because something is missing.
    complete : bool
        Whether it has all rows.
    few : sequence of arrays of bool
        Which rows choose at first, one step after the other.
    many : array of bool
        Which rows choose where the few have missed what matters.
    low, high : float
        The least target of all rows, and the largest.
    """

    X: Array
    y: Array
    weights: Array | None
    places: NDArray[np.intp]
    numbers: RowNumbers
    dropped: int
    complete: bool
    few: Sequence[NDArray[np.bool_]]
    many: NDArray[np.bool_]
    low: float
    high: float

    def rows_to_choose_by(self, used: NDArray[np.intp]) -> RowsToChooseBy:
        """Among those of its rows that are used."""
        *few, many = (np.flatnonzero(rows[used]) for rows in (*self.few, self.many))
        return RowsToChooseBy(tuple(few), many, self.low, self.high)


def draw_sample(
    source: DataSource,
    numbers: RowNumbers,
    wanted: int,
    steps: Sequence[int],
    seed: np.random.SeedSequence,
) -> Sample:
    """A few rows for each step, and those of least priority, so many or all: those that memory would draw.

    Where rows are left out, a second look is needed: the first counts them.
    """
    rows = numbers.total
    look, table, few = _look(source, numbers, wanted, steps, seed)
    numbers = look.with_left_out(table)
    if numbers.total < look.numbers.total:
        look, table, few = _look(source, numbers, wanted, steps, seed)
    table = table[~np.isnan(table[:, 2])]
    if len(table) == 1:
        raise ValueError(no_row(rows, int(table[0, 0])))
    order = 1 + np.argsort(table[1:, 0])
    number, priority = table[order, 0], table[order, 2]
    complete = numbers.total <= wanted
    many = priority < (1.0 if complete else np.partition(priority, wanted)[wanted])
    chosen = [np.isin(number, rows, assume_unique=True) for rows in few]
    kept = np.any([many, *chosen], axis=0)
    order, many, *chosen = (part[kept] for part in (order, many, *chosen))
    return Sample(
        X=table[order, 3:-2],  # the one copy of all rows
        y=table[order, -2],
        weights=None if np.isnan(table[order[0], -1]) else table[order, -1],
        places=table[order, 1].astype(np.intp),
        numbers=numbers,
        dropped=int(table[0, 0]),
        complete=complete,
        few=chosen,
        many=many,
        low=-float(table[0, -2]),
        high=float(table[0, -1]),
    )


def _look(
    source: DataSource, numbers: RowNumbers, wanted: int, steps: Sequence[int], seed: np.random.SeedSequence
) -> tuple[RandomSample, Array, list[NDArray[np.int64]]]:
    """A few rows more than wanted, and which of them are for each step."""
    few = list(few_rows(numbers.total, steps, seed))
    given = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *few]))
    share = (wanted + _SURPLUS * math.sqrt(wanted)) / numbers.total if numbers.total > wanted else 1.0
    look = RandomSample(numbers, source.width, sample_key(seed), min(share, 1.0), given)
    return look, source.engine.reduce(look), few
