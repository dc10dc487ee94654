"""``python -m tailproof`` and the ``tailproof`` command."""

from __future__ import annotations

import sys

from tailproof.interrupts import INTERRUPTED, ending_at_once


def main() -> None:
    """Run the command line, or say which extra it needs."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(INTERRUPTED) from None


def _run() -> None:
    try:
        with ending_at_once():
            from tailproof.cli.app import app
    except ImportError as missing:
        raise SystemExit(
            f"the command line needs {missing.name}: pip install 'tailproof[cli]' brings it"
        ) from None
    app()


if __name__ == "__main__":
    main()
