"""Reports of candidates: trained, merged, selected."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.merge import Merged
from tailproof.core.theory import guarantee
from tailproof.core.validate import Validation, interval_warning
from tailproof.reports.fit_report import Clock, Report
from tailproof.torch.block_batches import BlockBatches


def trained_report(
    blocks: BlockBatches, seed: np.random.SeedSequence, clock: Clock, kept: NDArray[np.intp], epochs: int
) -> Report:
    """Report of candidates that are neither merged nor selected yet."""
    k = blocks.sizes.size
    return Report.of(
        blocks.sizes,
        seed,
        clock,
        kept=kept,
        passes=epochs,
        method="candidates",
        why_k="set by the user",
        delta=math.exp(-k / 8),
        gradient_evaluations=epochs * k * blocks.rows_per_epoch,
        theorem="none yet: merge or select the candidates",
    )


def merged_report(
    before: Report, clock: Clock, how: str, merged: Merged, points: Array, *, linear: bool, rounds: int
) -> Report:
    """Report of a merge of these points.

    The confidence is what k blocks give, δ = exp(−k/8).
    """
    theorem = "none: the risk of this module is not convex in its parameters"
    if rounds:
        theorem = "none: the paper has no statement on several rounds"
    elif linear:
        # exp and log lose the last bit, which would ask for one block more.
        theorem = guarantee(
            "dc", before.k, int(before.block_sizes.sum()), before.delta * (1 + 1e-9), merge=how
        )
    return replace(
        before,
        method=f"DC, merge={how}" + (f", {rounds} rounds" if rounds else ""),
        seconds=dict(clock.seconds),
        theorem=theorem,
        radius=merged.radius,
        distances=np.linalg.norm(points - merged.point, axis=1),
    )


def selected_report(
    before: Report, clock: Clock, validation: Validation, best: int, delta: float, *, average: bool, rows: int
) -> Report:
    """Report of a selection by robust validation on so many rows."""
    return replace(
        before,
        method=f"RV{', averaged' if average else ''}, mean={validation.mean}",
        delta=delta,
        seconds=dict(clock.seconds),
        theorem=guarantee("rv", before.k, int(before.block_sizes.sum()) + rows, delta),
        validation_risk=validation.risk,
        validation_low=validation.low,
        validation_high=validation.high,
        best=best,
        mean=validation.mean,
        caution=interval_warning(validation.in_doubt),
    )
