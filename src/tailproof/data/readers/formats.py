"""Formats of files by their endings, and how the cells of a CSV become values."""

from __future__ import annotations

from typing import Any

from tailproof.core.lookup import Registry, optional
from tailproof.data.readers.packed import PACKING

FORMATS = Registry(
    "file ending",
    {
        ".parquet": "parquet",
        ".pq": "parquet",
        ".csv": "csv",
        ".tsv": "tsv",
        ".arrow": "ipc",
        ".feather": "ipc",
        ".ipc": "ipc",
    },
)
DELIMITERS = {"csv": ",", "tsv": "\t"}
MISSING_WORDS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "#N/A", "?")  # cells of a CSV
ENDINGS = ", ".join(FORMATS)
# Beyond what is read as one table: formats that come in batches, and texts that are compressed.
_TEXTS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "json", ".ndjson": "json"}
_PACKED = {ending + packing: kind for ending, kind in _TEXTS.items() for packing in ("", ".gz", ".bz2")}
_PACKED |= {ending + PACKING: kind for ending, kind in _TEXTS.items() if kind in DELIMITERS}
STREAMED_FORMATS = Registry("file ending", {**FORMATS, **_PACKED, ".orc": "orc"})


def dataset_format(kind: str) -> Any:
    """What ``pyarrow.dataset`` calls a format."""
    if kind not in DELIMITERS:
        return kind
    parsing = optional("pyarrow.csv", extra="cli").ParseOptions(delimiter=DELIMITERS[kind])
    return optional("pyarrow.dataset", extra="cli").CsvFileFormat(parsing, convert_options=csv_conversion())


def csv_conversion(**more: Any) -> Any:
    """How the cells of a CSV become values, wherever one is read: ``pyarrow.csv.ConvertOptions``.

    Parameters
    ----------
    **more
        Further options, such as ``include_columns``.
    """
    options = optional("pyarrow.csv", extra="cli").ConvertOptions
    return options(strings_can_be_null=True, null_values=list(MISSING_WORDS), **more)
