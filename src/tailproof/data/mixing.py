"""Files and chunks whose rows are in some order: noticed by a first look, and mixed on disk."""

from __future__ import annotations

import shutil
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tailproof.data.first_look import Seen, look_sorted
from tailproof.data.fit import Source
from tailproof.data.mixed import MixedPieces, known, mixed
from tailproof.data.readers.temporary_folder import scratch_folder

DISK = "disk"
_SPARE = 2.0  # free space against what mixing takes, where nobody asked for it


def mixing(
    source: Source, asked: bool, batch_rows: int, entropy: int, stack: ExitStack, saved: Any
) -> Source:
    """Return a stream that looks whether its rows are in some order, or is asked to mix them anyway."""
    watchful = replace(source.engine, watchful=not asked)
    return replace(
        source, engine=watchful, on_survey=Mixing(source, asked, batch_rows, entropy, stack, saved)
    )


@dataclass(frozen=True, eq=False)
class Mixing:
    """What a stream does about a first look at its pieces.

    Parameters
    ----------
    source : Source
    asked : bool
        Mix whatever the look says.
    batch_rows : int
    entropy : int
        Of the seed.
    stack : ExitStack
        Removes the folder at the end.
    saved : Checkpoint or None
        Then the folder lies beside its file, and is there when an interrupted fit goes on.
    """

    source: Source
    asked: bool
    batch_rows: int
    entropy: int
    stack: ExitStack
    saved: Any = None

    def __call__(self, seen: list[Seen]) -> Source | None:
        """Return the same rows in random order, where they need it; else None."""
        if any(not piece.dense for piece in seen):
            if self.asked:
                raise ValueError("sparse chunks cannot be mixed on disk: mix their rows before, or densify")
            return None
        if not (self.asked or look_sorted(seen)):
            return None
        folder, mark = self._folder(), "" if self.saved is None else self.saved.fingerprint
        pieces = known(folder, mark) if self.saved is not None else None
        if pieces is None and not self._has_room(folder.parent):
            return None
        pieces = pieces or self._mix(folder, mark)
        return replace(
            self.source,
            engine=replace(self.source.engine, pieces=pieces, watchful=False),
            text=f"{self.source.text}, mixed on disk" + ("" if self.asked else " since they look sorted"),
            pieces=len(pieces),
            skipped=partial(tuple, pieces.skipped),
        )

    def _folder(self) -> Path:
        if self.saved is None:
            return self.stack.enter_context(scratch_folder()) / "rows"
        folder = self.saved.path.with_name(self.saved.path.name + ".rows")
        self.saved.beside.append(folder)
        return Path(folder)

    def _mix(self, folder: Path, mark: str) -> MixedPieces:
        files = max(1, -(-(self.source.rows or 1) // self.batch_rows))
        every = self.source.engine.every_batch()
        return mixed(every, folder, files, self.entropy, self.source.skipped, mark)

    def _has_room(self, place: Path) -> bool:
        size = 8 * (self.source.width + 2) * (self.source.rows or 1)
        free = shutil.disk_usage(place).free
        if free > size * (1.0 if self.asked else _SPARE):
            return True
        text = f"mixing the rows on disk takes {size / 1e9:.1f} GB and {place} has {free / 1e9:.1f} free"
        if self.asked:
            raise OSError(f"{text}: set TMPDIR to a folder on a larger disk")
        warnings.warn(
            f"the rows look sorted, but {text}, so they are visited as they lie and candidates may not "
            "settle: set TMPDIR to a folder on a larger disk",
            UserWarning,
            stacklevel=6,
        )
        return False
