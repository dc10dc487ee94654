from dataclasses import fields, replace

import numpy as np
import pytest

from tailproof.reports.fit_report import Report
from tailproof.reports.round_report import RoundReport

REPORT = Report(
    method="DC-SGD",
    k=20,
    why_k="set by the user",
    delta=0.05,
    block_sizes=np.full(20, 7),
    seed=12,
    excluded=np.array([], dtype=int),
    passes=2,
    converged=True,
    gradient_evaluations=280,
    seconds={"train": 0.12345},
    theorem="none: k < 24 & more",
)


def test_text_has_a_line_for_everything_that_applies():
    lines = str(REPORT).splitlines()
    assert len(lines) == 12
    assert repr(REPORT) == str(REPORT)
    assert "7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, ... (20 in all)" in str(REPORT)
    assert "train 0.123 s" in str(REPORT)
    assert next(line for line in lines if line.startswith("excluded")).endswith("none")
    assert len({len(line) - len(line.split("  ", 1)[1].lstrip()) for line in lines}) == 1


def test_what_applies_is_shown():
    full = replace(
        REPORT, radius=1.5, distances=np.arange(3.0), stand_out=np.array([2]), best=0, mean="catoni",
        validation_risk=np.ones(2), validation_low=np.zeros(2), validation_high=np.full(2, np.nan),
        data="3 files", dropped_rows=4, skipped_files=("a.parquet",), caution="careful",
        outlying="two populations", left_out=np.array([3]), far_rows=5, carriers=np.array([4]),
        beaten_by_start=True, worse_than_constant=True, drift="errors rose",
        rounds=(RoundReport(1, 2.5, np.ones(3), np.array([2]), np.array([], dtype=int)),) * 2,
    )  # fmt: skip
    assert len(full.rows()) == len(fields(Report))
    assert dict(full.rows())["best"] == "0"
    assert "nan" in dict(full.rows())["validation high"]
    one = "round 1: majority radius 2.5, blocks that stand out: 2"
    assert dict(full.rows())["rounds"] == f"{one}; {one}"


def test_html_escapes():
    table = replace(REPORT, method="<b>&</b>")._repr_html_()
    assert "<b>" not in table
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in table
    assert "k &lt; 24 &amp; more" in table
    assert table.count("<tr>") == 12


@pytest.mark.parametrize(("best", "said"), [(3, "that of block 3"), (20, "that of all rows")])
def test_the_verdict_names_the_winner(best, said):
    found = replace(REPORT, validation_risk=np.arange(21.0), best=best, excluded=np.empty(0, dtype=int))
    assert found.verdict()[0] == f"Of 21 candidates, {said} has the least robust risk: 0."
