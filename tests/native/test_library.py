"""The right build is loaded; builds differ by rounding only, and processes not at all."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tailproof
from tailproof.native import library

SOURCE = Path(tailproof.__file__).parents[1]
# Where modules are compiled already, which nobody needs to do again.
COMPILED = {name: value for name, value in os.environ.items() if name == "PYTHONPYCACHEPREFIX"}
RUNNABLE = [
    name
    for name, level in library.LEVELS.items()
    if library.path_of(name).exists() and level <= library.open_build("baseline").cpu_level()
]
# Every family of compiled functions, on numbers that are easy to get slightly wrong.
RESULTS = """
import json, sys
import numpy as np, tailproof as tp
from scipy import sparse
rng = np.random.default_rng(0)
X, noise = rng.standard_normal((600, 7)) + 3, rng.standard_t(2.5, 600)
y, S = X.sum(axis=1) + noise, sparse.csr_array(X * (rng.random(X.shape) < 0.3))
def fits(n_jobs):
    common = {"random_state": 0, "n_jobs": n_jobs, "k": 5}
    return [
        tp.DCSGDRegressor(**common).fit(X, y).coef_,
        tp.DCSGDRegressor(**common).fit(X.astype(np.float32), y).coef_,
        tp.DCSGDRegressor("huber", constraint=("l1_ball", 5.0), batch_size=3, **common).fit(X, y).coef_,
        tp.DCSGDRegressor(penalty="elasticnet", alpha=0.01, **common).fit(S, y).coef_,
        tp.DCSGDClassifier(**common).fit(S, np.digitize(noise, [-1, 1])).coef_,
        tp.RVSGDClassifier(**common).fit(X, noise > 0).coef_,
        tp.RGDRegressor(aggregate="m_estimate", random_state=0, max_iter=20).fit(X, y).coef_,
        tp.means.catoni(X.T, axis=1), tp.means.median_of_means(X.T, axis=1),
        tp.merge.geometric_median(X[:30]).point, tp.merge.smallest_ball(X[:30]).point,
    ]
for n_jobs in sys.argv[1:]:
    print(json.dumps([np.ravel(part).tolist() for part in fits(int(n_jobs))]))
"""


def in_a_fresh_process(code, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": str(SOURCE)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def results(*n_jobs, build=library.BUILD):
    done = in_a_fresh_process(RESULTS, *map(str, n_jobs), TAILPROOF_CPU=build)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def expected():
    (line,) = results(1)
    return line


def test_every_build_of_this_machine_is_there():
    names = sorted(
        path.name for path in library.path_of("baseline").parent.glob(f"kernels_*{library.SUFFIX}")
    )
    assert names in (
        [library.path_of("baseline").name],
        [library.path_of(build).name for build in library.LEVELS],
    )
    assert library.BUILD in RUNNABLE


@pytest.mark.parametrize("build", [name for name in RUNNABLE if name != library.BUILD])
def test_builds_differ_by_rounding_only(build, expected):
    (line,) = results(1, build=build)
    for mine, theirs in zip(json.loads(line), json.loads(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_every_process_gets_the_same_bits(expected):
    assert results(1, 2, -1) == [expected] * 3


def test_the_best_build_for_the_processor_is_chosen():
    assert library.choose_build(None, 1) == "baseline"
    assert library.choose_build(None, 3) == ("v3" if library.path_of("v3").exists() else "baseline")
    assert library.choose_build("baseline", 4) == "baseline"


@pytest.mark.parametrize(("asked", "words"), [("v3", "this processor cannot"), ("avx", "must be one of")])
def test_a_build_that_cannot_run_is_refused(asked, words):
    with pytest.raises(ImportError, match=words):
        library.choose_build(asked, 1)


def test_the_environment_chooses():
    done = in_a_fresh_process("import tailproof", TAILPROOF_CPU="fast")
    assert done.returncode != 0
    assert "TAILPROOF_CPU must be one of baseline, v3, v4; got 'fast'" in done.stderr


def test_a_missing_library_says_how_to_get_it():
    with pytest.raises(ImportError, match=r"install tailproof again .* or run 'make native'"):
        library.open_build("v9")


def test_a_library_of_another_version_says_how_to_get_the_right_one():
    class Older:
        """Exports what the first libraries did: no version."""

    for compiled, version in ((Older(), 1), (SimpleNamespace(kernels_version=lambda: 99), 99)):
        words = rf"has version {version}, .* need version {library.VERSION}: .* 'make native'"
        with pytest.raises(ImportError, match=words):
            library.check_version("v3", compiled)


def exported():
    """What the sources export: every function with its arguments, and the record that they share."""
    sources = sorted((Path(__file__).parents[2] / "src/tailproof/native/c").iterdir())
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in sources if path.suffix in (".c", ".h", ".inc")
    )
    found = re.findall(
        r"EXPORT \w+ [^{;]*\)|struct problem \{[^}]*\}", re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    )
    return "\n".join(sorted(" ".join(part.split()) for part in found))


def test_a_change_of_what_is_exported_is_a_new_version():
    digest = hashlib.sha256(exported().encode()).hexdigest()[:16]
    assert (library.VERSION, digest) == (28, "2ed7da05b23569ce"), (
        "exported functions have changed: give VERSION in library.py and kernels_version in cpu.c the next "
        f"number, and put it here with the digest {digest}"
    )


FIRST_FIT = """
import sys
import numpy as np, tailproof as tp
written = []
def look(event, arguments):
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        written.append(arguments[0])
    if event in ("subprocess.Popen", "os.mkdir", "os.rename"):
        written.append(event)
sys.addaudithook(look)
X = np.random.default_rng(0).standard_normal((90, 3))
tp.DCSGDRegressor().fit(X, X.sum(axis=1))
tp.RobustRegressor().fit(X, X.sum(axis=1))
print(written)
"""


def test_the_first_fit_writes_no_file_and_starts_no_process():
    done = in_a_fresh_process(FIRST_FIT, PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout.strip() == "[]", done.stderr


def test_a_user_with_a_home_that_cannot_be_written_to(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-B", "-c", FIRST_FIT],
            env={"HOME": str(home), "PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]} | COMPILED,
            user=65534,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    except PermissionError:
        pytest.skip("only root may become another user, and that user must be able to run this Python")
    assert done.stdout.strip() == "[]", done.stderr
    assert list(home.iterdir()) == []
