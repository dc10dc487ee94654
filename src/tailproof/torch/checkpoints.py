"""Checkpoints of a running fit: whole or not there, whenever the process dies."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import torch


def write_checkpoint(path: Path, fingerprint: dict[str, Any], state: dict[str, Any]) -> None:
    """Replace the checkpoint in one step: a process killed while writing leaves the one before."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        with open(partial, "xb", opener=_private) as file:  # neither what is there already nor a link
            torch.save({"fingerprint": fingerprint, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def read_checkpoint(path: Path, fingerprint: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a checkpoint that belongs to this fit; raise for any other file."""
    try:
        saved = torch.load(path, weights_only=True)
        theirs, state = saved["fingerprint"], saved["state"]
    except Exception as error:
        raise ValueError(
            f"{path} is not a checkpoint of Candidates.fit: remove it or name another file"
        ) from error
    different = [name for name, value in fingerprint.items() if theirs.get(name) != value]
    if different:
        raise ValueError(
            f"{path} is the checkpoint of another fit, which differs in {', '.join(different)}: remove it or "
            "name another file"
        )
    return dict(state)
