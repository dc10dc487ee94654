"""Every example runs, without a warning, and has something to say; those of the gallery draw something."""

import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
IN_TESTS_OF_NETWORKS = ["torch_heavy_tails", "torch_federated", "torch_lstm"]
EXAMPLES = {path.stem: path for path in sorted(FOLDER.glob("*.py")) if path.stem not in IN_TESTS_OF_NETWORKS}
GALLERY = {path.stem: path for path in sorted((FOLDER / "gallery").glob("*.py"))}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, capsys):
    runpy.run_path(str(EXAMPLES[name]), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in GALLERY if name != "plot_network"])
def test_example_of_the_gallery_runs(name, capsys):
    plt.switch_backend("agg")
    runpy.run_path(str(GALLERY[name]), run_name="__main__")
    assert plt.get_fignums()
    plt.close("all")
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", GALLERY)
def test_example_of_the_gallery_has_a_title(name):
    """sphinx-gallery wants a heading, and runs files of this name alone."""
    title = re.match(r'"""\n(.+)\n(=+)\n\n\w', GALLERY[name].read_text())
    assert title
    assert len(title[1]) == len(title[2])
    assert name.startswith("plot_")


def test_the_gallery_is_large_enough():
    assert len(GALLERY) >= 12
