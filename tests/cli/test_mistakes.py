"""Malformed input: one line on stderr that says what and where, exit code 1 or 2, nothing left behind."""

import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save as save_tensors
from typer.testing import CliRunner

import tailproof as tp
from tailproof.cli.app import app
from tailproof.model_files import files
from tailproof.tables.model import fit_table, prepare

rng = np.random.default_rng(0)
GOOD = pa.table(
    {
        "size": rng.standard_normal(60),
        "colour": np.array(["red", "blue", "green"])[rng.integers(0, 3, 60)],
        "cost": rng.standard_normal(60),
        "label": np.array(["yes", "no"])[rng.integers(0, 2, 60)],
    }
)
FIT = ("fit", "data.csv", "--target", "cost", "--out", "out.model")
PREDICT = ("predict", "good.model", "data.csv", "--out", "out.csv")
COMPARE = ("compare", "good.parquet", "--target", "cost", "--report", "out.html")
DIAGNOSE = ("diagnose", "data.csv", "--target", "cost")

# The model is fitted to a few rows, whose candidates go on moving: not what these tests are about.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the candidates had not settled:sklearn.exceptions.ConvergenceWarning"
)


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """What lies in the folder of every test, file by file."""
    path = tmp_path_factory.mktemp("model") / "a.model"
    tp.save(tp.DCSGDRegressor(random_state=0).fit(np.arange(80.0)[:, None], np.arange(80.0)), path)
    bare = path.read_bytes()
    tp.save(fit_table(prepare(GOOD, "cost", leave_out=["label"]), "dc", {"random_state": 0}), path)
    good = path.read_bytes()
    broken = bytearray(good)
    broken[-20] ^= 1
    return {
        "good.model": good,
        "bare.model": bare,
        "damaged.model": bytes(broken),
        "cut.model": good[: len(good) // 2],
        "newer.model": forged(format=99, version="9.9"),
        "foreign.model": forged(model={"#": "os.system", "state": {}}),
        "fake.parquet": b"hello",
        "other.csv": b"a,b\n1,2\n",
    }


def lines(header, *rows, times=20):
    return "\n".join([header, *(list(rows) * times)]).encode()


def forged(**header):
    text = files.json.dumps({"format": 1, "version": "0.1.0", "model": {}} | header)
    metadata = {"tailproof": text, "sha256": files.checksum(text, {})}
    return save_tensors({}, metadata=metadata)


# What the file data.csv holds, the command, the exit code, and what the line must say.
FILES = {
    "no such file": (None, FIT, 1, "there is no file or folder data.csv"),
    "empty": (b"", FIT, 1, "data.csv is empty"),
    "blank lines": (b"\n\n\n", FIT, 1, "data.csv"),
    "header only": (b"size,cost\n", FIT, 1, "no rows"),
    "one row": (b"size,cost\n1,2\n", FIT, 1, "at least 10"),
    "nine rows": (lines("size,cost", "1,2", "2,3", "3,4", times=3), FIT, 1, "at least 10"),
    "target missing": (lines("size,price", "1,2"), FIT, 1, "no column 'cost'"),
    "target of another case": (lines("size,Cost", "1,2"), FIT, 1, "no column 'cost'"),
    "target never given": (lines("size,cost", "1,", "2,NA"), FIT, 1, "0 rows have a value of the target"),
    "target alone": (lines("cost", "1", "2"), FIT, 1, "nothing to learn it from"),
    "target infinite": (lines("size,cost", "1,inf", "2,3"), FIT, 1, "'cost' is infinite in row 1"),
    "target one text": (lines("size,cost", "1,yes"), FIT, 1, "one value only"),
    "target all different": (
        lines("size,cost", *(f"{j},id{j}" for j in range(40)), times=1),
        FIT,
        1,
        "too many to be classes",
    ),
    "target with a slip": (lines("size,cost", *["1,2"] * 9, "1,two"), FIT, 1, "row 10 says 'two'"),
    "a loss of the other task": (
        lines("size,cost", "1,yes", "2,no"),
        (*FIT, "--loss", "huber"),
        2,
        "--loss huber is none for classification: there are log_loss, hinge,",
    ),
    "all of every column missing": (lines("size,empty,cost", ",,2", ",,3"), FIT, 1, "no column is left"),
    "text in a number column": (
        lines("size,cost", *["1.5,2"] * 9, "oops,3"),
        FIT,
        1,
        "'size' holds numbers, but row 10 says 'oops'",
    ),
    "mixed types": (lines("size,cost", "1,2", "2,3", "red,4"), FIT, 1, "row 3 says 'red'"),
    "two columns of one name": (lines("size,size,cost", "1,2,3"), FIT, 1, "two columns named 'size'"),
    "infinite values": (lines("size,cost", "1,2", "-inf,3"), FIT, 1, "'size' is infinite in row 2"),
    "only constant columns": (lines("size,cost", "1,2", "1,3"), FIT, 1, "no column is left"),
    "a column named script": (
        lines("<script>alert(1)</script>,cost", "1,2", "inf,3"),
        FIT,
        1,
        "'<script>alert(1)</script>' is infinite",
    ),
    "wrong encoding": (
        "size,cost\n1,ä\n".encode("latin-1"),
        (*FIT, "--encoding", "utf-8"),
        1,
        "cannot be read as utf-8",
    ),
    "a sheet of a CSV": (lines("size,cost", "1,2"), (*FIT, "--sheet", "May"), 2, "--sheet is for Excel"),
    "a sheet of a CSV to diagnose": (
        lines("size,cost", "1,2"),
        (*DIAGNOSE, "--sheet", "May"),
        2,
        "data.csv is none",
    ),
    "a sheet of a CSV to predict": (
        lines("size,colour", "1,red"),
        (*PREDICT, "--sheet", "May"),
        2,
        "data.csv is none",
    ),
    "bytes": (bytes(range(256)) * 20, FIT, 1, "not a text file"),
    "ragged": (b"size,cost\n1,2\n1,2,3\n", FIT, 1, "Expected 2 columns, got 3"),
    "10,000 columns and one row": (
        (",".join(f"c{j}" for j in range(10_000)) + ",cost\n" + "1," * 10_000 + "2\n").encode(),
        FIT,
        1,
        "at least 10",
    ),
    "unclosed quote": (lines("size,cost", "1,2") + b'\n"1,2\n', FIT, 1, "data.csv"),
    "drop that is not there": (
        lines("size,cost", "1,2"),
        (*FIT, "--drop", "weight"),
        1,
        "no column 'weight'",
    ),
    "everything dropped": (
        lines("size,cost", "1,2"),
        (*FIT, "--drop", "size"),
        1,
        "nothing to learn it from",
    ),
    "a regression of texts": (
        lines("size,cost", "1,yes", "2,no"),
        (*FIT, "--task", "regression"),
        1,
        "a regression needs numbers",
    ),
    "negative counts": (
        lines("size,cost", "1.5,-2.5", "2,3.5"),
        (*FIT, "--loss", "poisson"),
        1,
        "poisson",
    ),
    "diagnose without a target column": (lines("size,price", "1,2"), DIAGNOSE, 1, "no column 'cost'"),
    "diagnose infinite values": (lines("size,cost", "1,2", "inf,3"), DIAGNOSE, 1, "infinite"),
    "target always the same": (
        lines("size,cost", "1,2.5", "2,2.5"),
        FIT,
        1,
        "'cost' has one value only, 2.5",
    ),
    "a class of one row": (
        lines("size,cost", *["1,yes", "2,no"] * 9, "3,maybe", times=1),
        FIT,
        1,
        "'cost' is 'maybe' in one row only",
    ),
    "too large to square": (lines("size,cost", "1e200,2.5", "2,3"), FIT, 1, "'size' holds 1e+200"),
    "target too large to square": (lines("size,cost", "1,-2e200", "2,3"), FIT, 1, "'cost' holds 2e+200"),
    "the target dropped": (lines("size,cost", "1,2"), (*FIT, "--drop", "cost"), 2, "leave the target out"),
    "predict without a column": (lines("size", "1"), PREDICT, 1, "no column 'colour', which the model needs"),
    "predict text for a number": (
        lines("size,colour", "big,red"),
        PREDICT,
        1,
        "'size' holds a category here; the model learned a number",
    ),
    "predict infinite": (lines("size,colour", "inf,red"), PREDICT, 1, "'size' is infinite in row 1"),
    "predict nothing": (b"size,colour\n", PREDICT, 1, "no rows"),
}

# Commands that are wrong whatever the data.
COMMANDS = {
    "no such method": ((*FIT, "--method", "magic"), 2, "'magic' is not one of auto, dc, rv"),
    "no such task": ((*FIT, "--task", "guess"), 2, "'guess' is not one of"),
    "no such engine": ((*FIT, "--engine", "abacus"), 2, "'abacus' is not one of"),
    "a cluster for this machine": (
        ("fit", "good.parquet", *FIT[2:], "--cluster", "tcp://127.0.0.1:1"),
        2,
        "--cluster goes with --engine dask or spark",
    ),
    "nobody at the master": (
        ("fit", "good.parquet", *FIT[2:], "--engine", "spark", "--cluster", "spark://127.0.0.1:1"),
        2,
        "--cluster spark://127.0.0.1:1: there is no Spark master (",
    ),
    "a master without a port": (
        ("fit", "good.parquet", *FIT[2:], "--engine", "spark", "--cluster", "spark://127.0.0.1"),
        2,
        "the address of a Spark master is spark://host:port",
    ),
    "weights on a cluster": (
        ("fit", "good.parquet", *FIT[2:], "--engine", "dask", "--offset", "size"),
        2,
        "--engine dask takes no weights or exposures",
    ),
    "no such loss": (
        ("fit", "good.parquet", *FIT[2:], "--loss", "huberr"),
        2,
        "there is no loss 'huberr': for regression squared_error, huber, absolute_error,",
    ),
    "a loss for classes of numbers": (
        ("fit", "good.parquet", *FIT[2:], "--loss", "hinge"),
        2,
        "--loss hinge is none for regression: there are squared_error, huber,",
    ),
    "delta of 2": (("fit", "good.parquet", *FIT[2:], "--delta", "2"), 2, "delta"),
    "k of nought": ((*FIT, "--k", "0"), 2, "--k"),
    "k with auto": (("fit", "good.parquet", *FIT[2:], "--k", "9"), 2, "--k does not go with --method auto"),
    "k above n": (("fit", "good.parquet", *FIT[2:], "--method", "dc", "--k", "999"), 1, "k=999"),
    "text for a number": ((*FIT, "--delta", "small"), 2, "--delta"),
    "no target": (("fit", "good.parquet", "--out", "out.model"), 2, "--target"),
    "no command of that name": (("learn", "good.parquet"), 2, "learn"),
    "delimiter of two": ((*FIT, "--delimiter", "::"), 2, "--delimiter must be one character"),
    "decimal of two": ((*FIT, "--decimal", ",,"), 2, "--decimal must be one character"),
    "a decimal that is none": ((*FIT, "--decimal", ":"), 2, "--decimal must be a point or a comma"),
    "decimal and thousands alike": ((*FIT, "--decimal", ",", "--thousands", ","), 2, "must differ"),
    "no such encoding": ((*FIT, "--encoding", "klingon"), 2, "--encoding klingon is none"),
    "power of another loss": (
        (*FIT, "--power", "1.5", "--loss", "gamma"),
        2,
        "--power is for --loss tweedie",
    ),
    "no such weight": ((*FIT, "--weight", "mass"), 1, "no column 'mass'"),
    "a weight that is the target": ((*FIT, "--weight", "cost"), 2, "cannot be two things at once"),
    "exposure twice": (
        (*FIT, "--exposure", "size", "--offset", "size"),
        2,
        "--exposure and --offset say the same thing",
    ),
    "keep what is not there": ((*PREDICT, "--keep", "weight"), 1, "no column 'weight'"),
    "no such test file": ((*FIT, "--test", "none.csv"), 1, "there is no file or folder none.csv"),
    "no such model": (("predict", "none.model", "good.parquet", "--out", "out.csv"), 1, "none.model"),
    "info of nothing": (("info", "none.model"), 1, "none.model"),
    "info of data": (("info", "good.parquet"), 1, "good.parquet is not a model file"),
    "damaged model": (("info", "damaged.model"), 1, "damaged"),
    "truncated model": (("predict", "cut.model", "good.parquet", "--out", "out.csv"), 1, "cut.model"),
    "model of a newer version": (("info", "newer.model"), 1, "written by tailproof 9.9"),
    "model with a foreign class": (("info", "foreign.model"), 1, "unknown class 'os.system'"),
    "model from Python": (("info", "bare.model"), 2, "holds a DCSGDRegressor from Python"),
    "no folder for the model": ((*FIT[:-1], "nowhere/out.model"), 1, "there is no folder"),
    "a folder as output": ((*FIT[:-1], "."), 1, "is a folder"),
    "no folder for the report": ((*COMPARE[:-1], "nowhere/out.html"), 1, "there is no folder"),
    "output of another kind": ((*PREDICT[:-1], "out.xlsx"), 2, "--out must end in"),
    "compare unknown models": ((*COMPARE, "--models", "linear,magic"), 2, "'magic' is not one of"),
    "compare none": ((*COMPARE, "--models", ","), 2, "--models names none"),
    "compare with more folds than rows": ((*COMPARE, "--models", "linear", "--folds", "99"), 1, "99"),
    "compare by an unknown loss": (
        (*COMPARE, "--models", "linear", "--loss", "magic"),
        2,
        "there is no loss 'magic': for regression squared_error, huber,",
    ),
    "compare regressors by a loss of classes": (
        (*COMPARE, "--loss", "log_loss"),
        2,
        "--loss log_loss is none",
    ),
    "compare by a loss that the target has not": (
        (*COMPARE, "--models", "linear", "--loss", "poisson"),
        1,
        "'poisson' needs targets that are not negative",
    ),
    "compare models without scores by a margin": (
        ("compare", "good.parquet", "--target", "label", "--loss", "hinge"),
        2,
        "--loss hinge needs scores, which 'constant' has not",
    ),
    "compare with a delta of nought": ((*COMPARE, "--delta", "0"), 2, "--delta"),
    "diagnose with a delta of NaN": ((*DIAGNOSE, "--delta", "nan"), 2, "--delta"),
    "a loss of another method": (
        ("fit", "good.parquet", *FIT[2:], "--loss", "huber"),
        2,
        "--loss huber does not go with --method auto (RobustRegressor), which takes gamma, poisson, ",
    ),
    "a seed beyond all": ((*FIT, "--seed", "99999999999"), 2, "--seed"),
    "a file without a name": (("fit", "", *FIT[2:]), 2, "an empty name is no file"),
    "the model over the data": (("fit", "good.parquet", *FIT[2:-1], "good.parquet"), 2, "is named twice"),
    "the report over the model": ((*FIT, "--report", "./out.model"), 2, "is named twice"),
    "the report over the data": ((*COMPARE[:-1], "good.parquet"), 2, "good.parquet is named twice"),
    "predictions over a file of a glob": (
        ("predict", "good.model", "*.csv", "--out", "data.csv"),
        2,
        "twice",
    ),
    "a glob that matches nothing": (("diagnose", "x*.csv", "--target", "cost"), 1, "file matches 'x*.csv'"),
    "a folder without data": (
        ("diagnose", "empty", "--target", "cost"),
        1,
        "the folder empty holds no file that ends in .parquet",
    ),
    "an ending that says nothing": (("diagnose", "good.model", "--target", "cost"), 1, "files end in"),
    "parquet that is none": (("diagnose", "fake.parquet", "--target", "cost"), 1, "cannot read fake.parquet"),
    "parquet that is none, to fit": (
        ("fit", "fake.parquet", "--target", "cost", "--out", "out.model"),
        1,
        "cannot read fake.parquet",
    ),
    "files that differ": (("diagnose", "good.parquet", "other.csv", "--target", "cost"), 1, "has a column"),
    "demo with too few rows": (("demo", "--rows", "3"), 2, "--rows"),
    "demo into nowhere": (("demo", "--report", "nowhere/out.html"), 1, "there is no folder"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch, contents):
    monkeypatch.chdir(tmp_path)
    pq.write_table(GOOD, "good.parquet")
    (tmp_path / "empty").mkdir()
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def check(folder, arguments, code, words):
    before = sorted(os.listdir(folder))
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, (done.output, done.exception)
    assert isinstance(done.exception, SystemExit)
    said = done.stderr.strip().splitlines()
    assert len(said) == 1, said
    assert said[0].startswith("error: ")
    assert words in said[0]
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize("case", FILES)
def test_files(folder, case):
    content, arguments, code, words = FILES[case]
    if content is not None:
        (folder / "data.csv").write_bytes(content)
    check(folder, arguments, code, words)


@pytest.mark.parametrize("case", COMMANDS)
def test_commands(folder, case):
    if "master" in case:
        pytest.importorskip("pyspark")
    (folder / "data.csv").write_bytes(lines("size,cost", "1,2", "2,3"))
    check(folder, *COMMANDS[case])


def test_there_are_enough_of_them():
    assert len(FILES) + len(COMMANDS) >= 40


@pytest.mark.parametrize("call", ["replace", "write"])
def test_a_full_disk_leaves_nothing_behind(folder, monkeypatch, call):
    """The rename fails, or the write does, as on a device without space."""

    def full(*_, **__):
        raise OSError(28, "No space left on device", "out.csv")

    class Full:
        def __init__(self, *_):
            open("out.partial", "xb").close()
            os.remove("out.partial")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        write = staticmethod(full)
        fileno = staticmethod(full)

    if call == "replace":
        monkeypatch.setattr(files.os, "replace", full)
    else:
        monkeypatch.setattr(files, "open", Full, raising=False)
    arguments = ("predict", "good.model", "good.parquet", "--out", "out.csv")
    check(folder, arguments, 1, "No space left on device: out.csv")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_device_is_written_as_it_is_and_a_link_stays_one(folder):
    kind = os.stat("/dev/full").st_rdev
    os.symlink("/dev/full", "full.csv")
    os.symlink("real.csv", "link.csv")
    check(
        folder, ("predict", "good.model", "good.parquet", "--out", "full.csv"), 1, "No space left on device"
    )
    assert os.stat("/dev/full").st_rdev == kind
    assert os.path.islink("full.csv")
    done = CliRunner().invoke(app, ["predict", "good.model", "good.parquet", "--out", "link.csv"])
    assert done.exit_code == 0
    assert os.path.islink("link.csv")
    assert (folder / "real.csv").read_text().startswith('"prediction"')


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights(folder):
    (folder / "locked").mkdir(mode=0o500)
    check(folder, ("predict", "good.model", "good.parquet", "--out", "locked/p.csv"), 1, "may not be written")


def test_ten_thousand_columns_are_no_mistake(folder):
    values = np.random.default_rng(0).standard_normal((20, 10_000))
    table = pa.table({f"c{j}": column for j, column in enumerate(values.T)} | {"cost": np.arange(20.0)})
    pq.write_table(table, "wide.parquet")
    arguments = ["fit", "wide.parquet", "--target", "cost", "--method", "dc", "--out", "wide.model"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert (folder / "wide.model").exists()


def test_random_bytes_are_never_a_traceback(folder):
    chance = random.Random(0)
    for j in range(25):
        text = lines("size,colour,cost", "1.5,red,2", "2,blue,3.5")
        broken = bytearray(text)
        for _ in range(chance.randrange(1, 20)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        (folder / "data.csv").write_bytes(broken)
        done = CliRunner().invoke(app, [*FIT, "--method", "dc", "--k", "2"])
        assert isinstance(done.exception, SystemExit | None), (j, done.exception)
        assert done.exit_code in (0, 1, 2)
