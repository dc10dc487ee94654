"""Finished trials on disk: one small Parquet file each, complete or absent, or all packed into one.

A file is written under another name and renamed, so that an interruption at any moment leaves no half
of it; a run goes on with the trials that are not there. Packed trials are rounded to five digits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailproof.core import Array
from tailproof.core.lookup import optional
from tailproof.paper.experiments import Experiment, Record
from tailproof.paper.variants import Choices


def _arrow() -> Any:
    optional("pyarrow.parquet", extra="paper")
    return optional("pyarrow", extra="paper")


@dataclass(frozen=True)
class Store:
    """The trials of one experiment under one set of choices.

    Parameters
    ----------
    out : Path
        Folder of all experiments.
    experiment : Experiment
    choices : Choices
        Those that differ from the defaults become part of the folder's name. On real data the start always
        does: trials of the first version, which have none in their name, had one for each sub-process.
    """

    out: Path
    experiment: Experiment
    choices: Choices

    @property
    def folder(self) -> Path:
        """Where the trials of this experiment are."""
        return self.out / (f"{self.experiment.name}@{self.tag}" if self.tag else self.experiment.name)

    @property
    def tag(self) -> str:
        """What distinguishes these trials from others of the experiment, in names of files."""
        return self.choices.tag(*(("start",) if self.experiment.run_many else ()))

    @property
    def archive(self) -> Path:
        """Where packed trials are, beside the folder."""
        return self.folder.with_name(f"{self.folder.name}.parquet")

    def exists(self) -> bool:
        """Whether anything was run."""
        return self.folder.is_dir() or self.archive.exists()

    def path(self, setting: str, trial: int) -> Path:
        """File of one trial."""
        return self.folder / f"{setting.replace(' ', '_')}.{trial:05d}.parquet"

    def open(self) -> None:
        """Make the folder, and find out now whether it can be written to; clear what was left half-done."""
        _arrow()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(".*.tmp-*"):
                left.unlink(missing_ok=True)
            probe = self.folder / f".probe.tmp-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as problem:
            raise OSError(f"cannot write to {self.folder}: {problem.strerror}") from None

    def missing(self, settings: Iterable[str], trials: int) -> list[tuple[str, int]]:
        """Trials that are not there yet, all settings in turn, so that a part is a fair part."""
        names, packed = list(settings), {(setting, trial) for setting, trial, _ in self._packed()}
        wanted = [(name, trial) for trial in range(trials) for name in names]
        return [pair for pair in wanted if pair not in packed and not self.path(*pair).exists()]

    def write(self, setting: str, trial: int, records: list[Record]) -> None:
        """Keep a finished trial."""
        pa = _arrow()
        sizes = [record.costs.size for record in records]
        table = pa.table(
            {
                "setting": pa.array([setting] * sum(sizes)),
                "trial": pa.array(np.full(sum(sizes), trial, dtype=np.int32)),
                "method": np.repeat([record.method for record in records], sizes),
                "step": np.concatenate([np.arange(size, dtype=np.int32) for size in sizes]),
                "cost": np.concatenate([record.costs for record in records]).astype(np.int64),
                "excess": np.concatenate([record.excess for record in records]),
                "seconds": _spread(pa, [record.seconds for record in records], sizes),
                "processor": _spread(pa, [record.processor for record in records], sizes),
            }
        )
        _replace(table, self.path(setting, trial))

    def read(self, setting: str) -> list[Any]:
        """Tables of the finished trials of a setting, by number."""
        pa = _arrow()
        packed = [(trial, table) for name, trial, table in self._packed() if name == setting]
        pattern = self.path(setting, 0).name.replace("00000", "*")
        files = [(int(file.name.split(".")[-2]), file) for file in self.folder.glob(pattern)]
        there = {trial for trial, _ in packed}
        loose = [(trial, pa.parquet.read_table(file)) for trial, file in files if trial not in there]
        return [table for _, table in sorted([*packed, *loose], key=lambda pair: pair[0])]

    def pack(self) -> Path:
        """Put all trials into one small file, in place of theirs; return which."""
        pa = _arrow()
        tables = [table for setting in self.experiment.settings for table in self.read(setting.name)]
        if not tables:
            raise ValueError(
                f"no trials of {self.experiment.name} in {self.folder}: there is nothing to pack"
            )
        rounded = [
            table.set_column(at, "excess", pa.array(_rounded(table["excess"].to_numpy())))
            for table in tables
            for at in [table.schema.get_field_index("excess")]
        ]
        # Numbers first by their first byte: compresses to two fifths.
        _replace(
            pa.concat_tables(rounded),
            self.archive,
            compression="zstd",
            compression_level=15,
            use_dictionary=["setting", "method", "trial", "step", "cost", "seconds", "processor"],
            column_encoding={"excess": "BYTE_STREAM_SPLIT"},
        )
        for file in self.folder.glob("*.parquet"):
            file.unlink()
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()
        return self.archive

    def _packed(self) -> Iterator[tuple[str, int, Any]]:
        """Setting, number and table of every packed trial; rows of a trial follow each other."""
        if not self.archive.exists():
            return
        table = _arrow().parquet.read_table(self.archive)
        settings, trials = (
            np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in ("setting", "trial")
        )
        begins = np.flatnonzero(
            np.append(True, (settings[1:] != settings[:-1]) | (trials[1:] != trials[:-1]))
        )
        for begin, end in pairwise([*begins.tolist(), len(trials)]):
            yield str(settings[begin]), int(trials[begin]), table.slice(begin, end - begin)


def _replace(table: Any, final: Path, **how: Any) -> None:
    """Write a file as a whole or not at all."""
    unfinished = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    _arrow().parquet.write_table(table, unfinished, **how)
    os.replace(unfinished, final)


def _rounded(values: Array) -> NDArray[np.float32]:
    """Numbers with 17 binary digits, which is more than five decimal ones; what is left compresses."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(1 << 6)) & np.uint32(~0x7F & 0xFFFFFFFF)).view(np.float32)


def _spread(pa: Any, values: list[float | None], sizes: list[int]) -> Any:
    """Return a column with one value per method, on each of its rows; null where nothing was timed."""
    rows = [value for value, size in zip(values, sizes, strict=True) for _ in range(size)]
    return pa.array(rows, pa.float64())


STATISTICS: dict[str, Callable[[Array], Array]] = {
    "average": lambda excess: np.add.reduce(excess) / len(excess),
    "sd": lambda excess: excess.std(axis=0),
    "median": lambda excess: _middle(np.sort(excess, axis=0)),
}


def _middle(ordered: Array) -> Array:
    """Median over the first axis: a tenth of the time of ``np.median`` for the few trials of a bootstrap."""
    half = len(ordered) // 2
    return np.asarray(ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2)


@dataclass(frozen=True, eq=False)
class Curves:
    """All trials of one method in one setting.

    Attributes
    ----------
    costs : array of shape (looks,)
    excess : array of shape (trials, looks)
    seconds, processor : arrays of shape (trials,)
        On the clock and of the processor; NaN where no time was taken.
    """

    costs: NDArray[np.intp]
    excess: Array
    seconds: Array
    processor: Array
    _known: dict[str, Array] = field(default_factory=dict, init=False, repr=False)

    @property
    def final(self) -> Array:
        """Excess risk at the end, one number a trial."""
        return self.excess[:, -1]

    def over_trials(self, statistic: str) -> Array:
        """A statistic of the excess risk at every look; computed once."""
        if statistic not in self._known:
            self._known[statistic] = STATISTICS[statistic](self.excess)
        return self._known[statistic]

    def at_end(self, statistic: str) -> float:
        """A statistic of the excess risk at the end; computed once."""
        key = f"{statistic} at the end"
        if key not in self._known:
            self._known[key] = STATISTICS[statistic](self.final)
        return float(self._known[key])


class Resampled(Curves):
    """Curves with some trials, possibly several times, of others; arrays are made when they are asked for."""

    _curves: Curves
    _trials: NDArray[np.intp]

    def __init__(self, curves: Curves, trials: NDArray[np.intp]) -> None:
        vars(self).update(_curves=curves, _trials=trials, costs=curves.costs, _known={})

    def __getattr__(self, name: str) -> Array:
        if name not in ("excess", "seconds", "processor"):
            raise AttributeError(name)
        made: Array = getattr(self._curves, name)[self._trials]
        vars(self)[name] = made
        return made

    @property
    def final(self) -> Array:
        """Excess risk at the end, one number a trial."""
        return self._curves.final[self._trials]


Methods = Mapping[str, Curves]
Results = Mapping[str, Methods]  # by setting


def load(store: Store) -> Results:
    """Everything that is there; settings without a trial are left out."""
    trials = {}
    for setting in store.experiment.settings:
        tables = store.read(setting.name)
        if tables:
            # Trials of an earlier version may lack a method that has been added since.
            there = set.intersection(*(set(table["method"].unique().to_pylist()) for table in tables))
            methods = [method for method in setting.budgets if method in there]
            trials[setting.name] = {method: _curves(tables, method) for method in methods}
    return trials


def _curves(tables: list[Any], method: str) -> Curves:
    parts = []
    for table in tables:
        names = np.asarray(table["method"].to_numpy(zero_copy_only=False))
        chosen = np.flatnonzero(names == method)
        parts.append(
            {name: table[name].to_numpy()[chosen] for name in ("cost", "excess", "seconds", "processor")}
        )
    firsts = [
        np.array([part[name][0] for part in parts], dtype=np.float64) for name in ("seconds", "processor")
    ]
    return Curves(parts[0]["cost"], np.stack([part["excess"] for part in parts]), *firsts)
