"""Print what an extra of pyproject.toml asks for, without the package itself, a requirement a line."""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(extra: str) -> set[str]:
    """Of an extra, and of those that it names."""
    found = set()
    for line in PROJECT["optional-dependencies"][extra]:
        name, _, others = line.partition("[")
        if name == PROJECT["name"]:
            found |= set().union(*map(requirements, others.rstrip("]").split(",")))
        else:
            found.add(line)
    return found


sys.stdout.writelines(f"{line}\n" for line in sorted({*PROJECT["dependencies"], *requirements(sys.argv[1])}))
