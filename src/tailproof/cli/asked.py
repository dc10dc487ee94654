"""What a command was asked to learn from: files, how they are written, and what their columns are for."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailproof import __version__
from tailproof.cli import options as opt
from tailproof.cli.output import say, say_columns
from tailproof.data.readers.files import expand
from tailproof.tables.dialect import Dialect
from tailproof.tables.formats import STDIN, Source
from tailproof.tables.model import CLASSIFICATION, REGRESSION, OptionError, PreparedTable, Roles, prepare
from tailproof.tables.reading import ReadTable, read_files, read_sample

MOST_NOTES = 5  # about files, of which there may be thousands


@dataclass(frozen=True)
class Asked:
    """Options about data that commands share.

    Attributes
    ----------
    data : list of str
    target, task : str
    drop : list of str
    dialect : Dialect
        As far as it was given.
    roles : Roles
    quiet : bool
        Do not print how the columns were read.
    """

    data: list[str]
    target: str
    task: str = "auto"
    drop: list[str] = field(default_factory=list)
    dialect: Dialect = field(default_factory=Dialect)
    roles: Roles = field(default_factory=Roles)
    quiet: bool = False

    @property
    def source(self) -> str:
        """Files in a few words, for the head of a page."""
        return f"{', '.join(self.data[:5])} · tailproof {__version__}"

    def read(self, stage: Any, most: int | None = None) -> ReadTable:
        """Read the files, or so many rows of Parquet files, and print how."""
        stage("reading")
        check_sheet(self.dialect.sheet, self.data)
        if most is None:
            read = read_files(self.data, self.dialect)
        else:
            read = read_sample(files_of(self.data), self.dialect, most)
        self.tell(read)
        return read

    def tell(self, read: ReadTable) -> None:
        """Print how the columns were read, unless nobody wants to know."""
        if self.quiet:
            return
        for note in read.notes[:MOST_NOTES]:
            say(note)
        dropped = self._dropped_of(read)
        say_columns([replace(c, remark="left out") if c.name in dropped else c for c in read.columns])

    def _dropped_of(self, read: ReadTable) -> list[str]:
        return opt.listed(self.drop, read.table.column_names)

    def prepare(self, read: ReadTable, stage: Any) -> PreparedTable:
        """Turn what was read into numbers."""
        stage("turning columns into numbers")
        roles = {"weight": self.roles.weight, "exposure": self.roles.exposure, "offset": self.roles.offset}
        return prepare(read.table, self.target, self.task, self._dropped_of(read), **roles)

    def in_words(self) -> str:
        """The same data in another command: files, target, and the options that were given.

        Examples
        --------
        >>> Asked(["a b.csv"], "cost", drop=["id"], dialect=Dialect(decimal=",", missing=("?",))).in_words()
        "'a b.csv' --target cost --drop id --decimal , --na '?'"
        """
        given: list[tuple[str, str | None]] = [("--task", None if self.task == "auto" else self.task)]
        given += [("--drop", name) for name in self.drop]
        for name in ("delimiter", "encoding", "decimal", "thousands", "date_format", "sheet"):
            given.append((f"--{name.replace('_', '-')}", getattr(self.dialect, name)))
        given += [("--na", word) for word in self.dialect.missing]
        options = [word for name, value in given if value is not None for word in (name, value)]
        return shlex.join([*self.data, "--target", self.target, *options])

    def python(self, read: ReadTable, rows: PreparedTable, estimator: Any) -> str:
        """Code that fits the same model: as for any table, or with columns that have a role."""
        given = {name: value for name, value in vars(self.dialect).items() if value}
        reading = ", ".join([repr(self.data), *(f"{name}={value!r}" for name, value in given.items())])
        plain = not self.roles.names and not rows.without_target and rows.target_type != "date"
        write = self._plain_code if plain else self._code_with_roles
        names = "read_table" if plain else "prepare, read_table"
        return (
            f"import tailproof as tp\nfrom tailproof.tables import {names}\n\n"
            f"table = read_table({reading})\n{write(rows, self._dropped_of(read), estimator)}"
        )

    def _plain_code(self, rows: PreparedTable, dropped: list[str], estimator: Any) -> str:
        wrapper = {REGRESSION: "TableRegressor", CLASSIFICATION: "TableClassifier"}[rows.task]
        return (
            f"X = table.drop_columns({[rows.target, *dropped]!r})\n"
            f"y = table[{rows.target!r}].to_pylist()\n"
            f"model = tp.{wrapper}(tp.{estimator!r}).fit(X, y)\n"
            "print(model.estimator_.report_)\n"
        )

    def _code_with_roles(self, rows: PreparedTable, dropped: list[str], estimator: Any) -> str:
        roles = [f"{name}={value!r}" for name, value in vars(self.roles).items() if value]
        asked = ", ".join([repr(self.target), repr(self.task), repr(dropped), *roles])
        weights = "" if rows.weights is None else ", sample_weight=rows.weights"
        return (
            f"rows = prepare(table, {asked})\n"
            f"model = tp.{estimator!r}.fit(rows.X, rows.y{weights})\n"
            "print(model.report_)\n"
        )


def files_of(data: list[str]) -> list[Path]:
    """Files behind paths, globs and folders; standard input is none."""
    return [path for item in data if item != STDIN for path in expand(item)]


def check_sheet(sheet: str | None, data: list[str]) -> None:
    """Refuse a sheet of files that have none."""
    for path in files_of(data) if sheet is not None else []:
        if Source.of(path).kind != "xlsx":
            raise OptionError(f"--sheet is for Excel files, and {path} is none: leave it out")


def command() -> str:
    """The command as it was given."""
    return "tailproof " + shlex.join(sys.argv[1:])


def command_in_lines() -> str:
    """The command with every option in a line of its own."""
    words = (f"\\\n    {word}" if word.startswith("--") else word for word in map(shlex.quote, sys.argv[1:]))
    return " ".join(["tailproof", *words])
