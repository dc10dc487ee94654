"""Every example runs, without a warning, and has something to say; those of the gallery draw something."""

import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
GALLERY = {path.stem: path for path in sorted((FOLDER / "gallery").glob("*.py"))}
# What networks need to say something takes half a minute; to run takes less.
SMALL = {
    "torch_convnet": {"epochs": 2},
    "torch_federated": {"rounds": 2},
    "torch_heavy_tails": {"n": 600, "epochs": 2},
    "torch_lstm": {"n": 300, "epochs": 2},
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name, capsys):
    example = runpy.run_path(str(EXAMPLES[name]), run_name=name if name in SMALL else "__main__")
    if name in SMALL:
        example["main"](**SMALL[name])
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in GALLERY if name != "plot_network"])  # see tests/torch
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
