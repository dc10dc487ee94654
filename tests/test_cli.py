import subprocess
import sys

import tailproof


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tailproof", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_demo_prints_a_row_for_every_model():
    done = run("demo", "--draws", "2", "--rows", "300", "--columns", "3")
    assert done.returncode == 0, done.stderr
    peers = ("LinearRegression", "SGDRegressor", "HuberRegressor")
    for name in ("RobustRegressor", *peers, "DC-SGD", "RV-SGDAve"):
        assert name in done.stdout


def test_version():
    assert run("--version").stdout.strip() == tailproof.__version__


def test_a_mistake_is_not_a_traceback():
    done = run("demo", "--rows", "many")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "--rows" in done.stderr


def test_without_the_extra_the_command_names_it():
    code = "import sys; sys.modules['typer'] = None; from tailproof.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "pip install 'tailproof[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
