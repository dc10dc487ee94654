"""Compiled functions round alike in the process that compiles them and in those that load them."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

import tailproof

SOURCE = Path(tailproof.__file__).parent
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted(SOURCE.rglob("*.py"))
    if "\n@compiled(" in path.read_text()
]
# Blocks of 57 and 58 values, summed by a function that compiled code calls.
SUMS = """
import numpy as np
from tailproof.core.numerics.m_estimates import medians_of_means
values = np.random.default_rng(0).standard_t(2.5, (6, 401))
print(medians_of_means(values, np.empty(0), 7, np.zeros(6), False).tobytes().hex())
"""


def compiled_in(module):
    parts = vars(importlib.import_module(f"tailproof.{module}")).values()
    return [part for part in parts if isinstance(part, Dispatcher)]


def called_by(function):
    known = function.py_func.__globals__
    named = (known.get(name) for name in function.py_func.__code__.co_names)
    return [part for part in named if isinstance(part, Dispatcher)]


def reorders(function):
    return bool(function.targetoptions["fastmath"]) or any(map(reorders, called_by(function)))


def is_a_part(function):
    return function.targetoptions["forceinline"] or function.targetoptions.get("inline") == "always"


@pytest.mark.parametrize("module", MODULES)
def test_options_that_numba_would_hand_down_are_stated(module):
    assert compiled_in(module)
    for function in compiled_in(module):
        assert {"fastmath", "forceinline", "error_model"} <= set(function.targetoptions), function.__name__


@pytest.mark.parametrize("module", MODULES)
def test_what_reorders_sums_is_a_part_of_its_callers(module):
    for caller in compiled_in(module):
        loose = [part.__name__ for part in called_by(caller) if reorders(part) and not is_a_part(part)]
        assert loose == [], caller.__name__


def test_the_last_bit_is_the_same_compiled_and_loaded(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    compiled, loaded = (
        subprocess.run([sys.executable, "-c", SUMS], env=environment, capture_output=True, check=True).stdout
        for _ in range(2)
    )
    assert compiled == loaded
