"""Cells in quotes: line ends within them, wherever in a file they are."""

from __future__ import annotations

import csv
import gzip

import pytest

from tailproof.tables.dialect import SAMPLE_BYTES
from tailproof.tables.reading import read_table

PLAIN = [[str(j), f"name {j % 7}, or so" + " and so on" * 10, str(j / 8)] for j in range(18_000)]


def written(path, rows, encoding="utf-8"):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding=encoding, newline="") as file:
        out = csv.writer(file, quoting=csv.QUOTE_ALL)
        out.writerows([["i", "name", "x"], *rows])
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_line_ends_behind_the_sample_are_kept(tmp_path, name, lines, encoding):
    rows = [list(row) for row in PLAIN]
    for row in rows[10_000:] if lines else []:
        row[1] = "two\nlines,\nor three" * 6
    path = written(tmp_path / name, rows, encoding)
    table = read_table(path)
    assert sum(len(",".join(row)) for row in PLAIN[:10_000]) > SAMPLE_BYTES
    # Files are read by blocks of a megabyte: so many lines end in quotes that a block would end there, too.
    assert sum(len(",".join(row)) for row in rows) > 2 << 20
    assert table.column("name").cast("string").to_pylist() == [row[1] for row in rows]
    assert table.column("i").to_pylist() == list(range(18_000))


def test_a_quote_inside_of_a_cell_is_a_character(tmp_path):
    lines = [f'{j},5" pipe,{j / 4}' for j in range(50_000)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["i,name,x", *lines]))
    table = read_table(path)
    assert table.num_rows == 50_000
    assert set(table.column("name").cast("string").to_pylist()) == {'5" pipe'}
