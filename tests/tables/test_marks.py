"""Is 1.668 less than two or more than a thousand? Shown, or guessed and said, and never silently wrong."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import tailproof as tp
from tailproof.cli.app import app
from tailproof.data.readers.files import BadFileError
from tailproof.tables import read_table
from tailproof.tables.dialect import Dialect
from tailproof.tables.reading import read_files

LEARNED_POINTS = Dialect(decimal=".").as_learned
ASKED_POINTS = replace(LEARNED_POINTS, asked=True)
LEARNED_COMMAS = Dialect(decimal=",").as_learned


def read(folder, content, given=None, name="t.csv"):
    path = folder / name
    path.write_text(content)
    return read_files(path, given or Dialect())


def column(folder, content, given=None):
    return read(folder, content, given).table.column(0).to_pylist()


SHOWN = {
    "a column that has commas": ("m;y\n1.668;3,5\n2.010;4\n", [1668.0, 2010.0]),
    "a column that has points": ("m;y\n1.668;3.5\n2.010;4\n", [1.668, 2.01]),
    "several points": ("m;y\n1.668;3\n2.010.000;4\n", [1668.0, 2010000.0]),
    "several commas": ('m,y\n"1,668",3\n"2,010,000",4\n', [1668.0, 2010000.0]),
    "points and commas": ("m;y\n1.668;3\n2.010,5;4\n", [1668.0, 2010.5]),
    "commas and points": ('m,y\n"1,668",3\n"2,010.5",4\n', [1668.0, 2010.5]),
    "a zero before the point": ("m;y\n1.668;3\n0.123;4\n", [1.668, 0.123]),
    "a zero before the comma": ("m;y\n1,668;3\n0,123;4\n", [1.668, 0.123]),
    "a zero before the comma, tabs": ("m\ty\n1,668\t3\n0,123\t4\n", [1.668, 0.123]),
    "a zero before the comma, quotes": ('m,y\n"1,668",3\n"0,123",4\n', [1.668, 0.123]),
    "four digits before the point": ("m;y\n1.668;3\n1234.123;4\n", [1.668, 1234.123]),
    "two digits behind the point": ("m;y\n1.668;3\n2.01;4\n", [1.668, 2.01]),
    "four digits behind the point": ("m;y\n1.668;3\n2.0101;4\n", [1.668, 2.0101]),
    "an exponent": ("m;y\n1.668;3\n2.010e3;4\n", [1.668, 2010.0]),
    "whole numbers of four digits": ("m;y\n1.668;3\n2010;4\n", [1.668, 2010.0]),
    "small ones beside round ones": ("m;y\n1.668;3\n850;4\n2.010;1\n", [1668.0, 850.0, 2010.0]),
    "small ones, tabs": ("m\ty\n1,668\t3\n850\t4\n2,010\t1\n", [1668.0, 850.0, 2010.0]),
    "small ones, quotes": ('m,y\n"1,668",3\n850,4\n"2,010",1\n', [1668.0, 850.0, 2010.0]),
    "small ones, semicolons": ("m;y\n1,668;3\n850;4\n2,010;1\n", [1668.0, 850.0, 2010.0]),
    "pounds": ("m;y\n£1.668;£0,50\n£2.010;£4\n", [1668.0, 2010.0]),
}  # fmt: skip


@pytest.mark.parametrize("case", SHOWN)
def test_what_cells_show_is_read_without_a_word(case, tmp_path):
    content, numbers = SHOWN[case]
    found = read(tmp_path, content)
    assert found.table.column(0).to_pylist() == numbers
    assert not found.dialect.guessed
    assert not found.notes
    assert not any("guess" in column.remark for column in found.columns)


GUESSED = {
    "semicolons": ("m;y\n1.668;3\n2.123;4\n", [1668.0, 2123.0], [1.668, 2.123], "."),
    "amounts": ("m;y\n€ 1.668;3\n€ 2.123;4\n", [1668.0, 2123.0], [1.668, 2.123], "."),
    "semicolons, commas": ("m;y\n1,668;3\n2,123;4\n", [1.668, 2.123], [1668.0, 2123.0], "."),
    "commas": ("m,y\n1.668,3\n2.123,4\n", [1.668, 2.123], [1668.0, 2123.0], ","),
    "quotes": ('m,y\n"1,668",3\n"2,123",4\n', [1668.0, 2123.0], [1.668, 2.123], ","),
    "tabs": ("m\ty\n1.668\t3\n2.123\t4\n", [1.668, 2.123], [1668.0, 2123.0], ","),
    "tabs, commas": ("m\ty\n1,668\t3\n2,123\t4\n", [1668.0, 2123.0], [1.668, 2.123], ","),
    "dotted dates": ("m\ty\n1.668\t31.12.1999\n2.123\t30.12.1999\n", [1668.0, 2123.0], [1.668, 2.123], "."),
    "small ones": ("m,y\n1.668,3\n850,4\n", [1668.0, 850.0], [1.668, 850.0], "."),
    "far below the first rows": (
        "m;y\n" + "12;3\n" * 5000 + "1.668;3\n",
        [12.0] * 5000 + [1668.0],
        [12.0] * 5000 + [1.668],
        ".",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GUESSED)
def test_a_guess_is_said_with_the_option_that_turns_it_round(case, tmp_path):
    content, guess, other, option = GUESSED[case]
    with pytest.warns(
        UserWarning, match=rf"t\.csv: '.*' is read as .*, which is a guess: --decimal \{option} "
    ):
        found = read(tmp_path, content)
    assert found.table.column(0).to_pylist() == guess
    assert found.dialect.guessed
    assert f"which is a guess: --decimal {option} reads it" in found.columns[0].remark
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert column(tmp_path, content, Dialect(decimal=option)) == other
        thousands = {".": ",", ",": "."}[option]
        assert column(tmp_path, content, Dialect(thousands=thousands)) == other
        assert column(tmp_path, content, Dialect(thousands=option)) == guess
        assert read_table(tmp_path / "t.csv", decimal=option).column(0).to_pylist() == other


def test_names_and_words_are_not_doubted(tmp_path):
    """Versions, addresses and whole numbers have no decimal mark."""
    content = "v;ip;n;w\nv1.2.3;10.0.0.1;1668;a\nv1.3.1;10.0.0.2;2010;b\n"
    assert read(tmp_path, content).dialect.decimal is None
    assert read(tmp_path, "n;w\n1;x\n2;y\n").dialect.decimal is None


@pytest.mark.parametrize(
    ("content", "given", "numbers"),
    [
        ("m;y\n1.668;3\n2.123;4\n", ASKED_POINTS, [1.668, 2.123]),
        ("m;y\n1.668;3\n2.123;4\n", LEARNED_COMMAS, [1668.0, 2123.0]),
        ('m,y\n"1,668",3\n', LEARNED_POINTS, [1668.0]),
        ('m,y\n"1,668",3\n', replace(LEARNED_COMMAS, asked=True), [1.668]),
        ("m;y\n1.046,75;3\n", LEARNED_POINTS, [1046.75]),
        ("m,y\n1046.75,3\n", LEARNED_COMMAS, [1046.75]),
        ("m;y\n1.668;0,5\n", Dialect(thousands=",", decimal=".").as_learned, [1668.0]),
    ],
)
def test_a_file_is_read_by_what_it_shows_and_then_as_the_model_learned(content, given, numbers, tmp_path):
    assert column(tmp_path, content, given) == numbers


def test_a_mark_that_differs_is_said_where_it_matters(tmp_path):
    with pytest.warns(
        UserWarning, match=r"by the decimal mark of the model's files: --decimal , reads it as 1668"
    ):
        assert column(tmp_path, "m;y\n1.668;3\n", LEARNED_POINTS) == [1.668]
    (note,) = read(tmp_path, "m;y\n1.668;3,5\n", LEARNED_POINTS).notes
    assert note.endswith(
        "shows ',' as decimal mark, and the model's files had '.': '1.668' is read as 1668; "
        "--decimal . reads it as 1.668"
    )
    (note,) = read(tmp_path, "m;y\n1.668;3,5\n", Dialect(decimal=".")).notes
    assert note.endswith("and --decimal asks for '.': '1.668' is read as 1.668; --decimal , reads it as 1668")
    for given in (LEARNED_POINTS, Dialect(decimal=".")):  # nothing differs here
        assert read(tmp_path, "m;y\n108,34;3,5\n", given).notes == []


def test_several_files_help_each_other(tmp_path):
    (tmp_path / "a.csv").write_text("m;y\n1.668;3\n2.123;4\n")
    (tmp_path / "b.csv").write_text("m;y\n850;3,5\n3.000;4\n")
    (tmp_path / "c.csv").write_text("m;y\n850;3\n3;4\n")
    assert read_table(tmp_path).column("m").to_pylist() == [1668.0, 2123.0, 850.0, 3000.0, 850.0, 3.0]


def test_each_of_several_files_is_read_by_its_own_mark(tmp_path):
    (tmp_path / "a.csv").write_text("m;y\n1.668,5;3,5\n1.668;0,5\n")
    (tmp_path / "b.csv").write_text('m,y\n"1,668.5",3.5\n"1,668",0.5\n')
    found = read_table(tmp_path)
    assert found.column("m").to_pylist() == [1668.5, 1668.0] * 2
    assert found.column("y").to_pylist() == [3.5, 0.5] * 2


def european(value):
    return f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Prices in thousands, of houses whose size decides; commands in their folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    sizes = rng.integers(1_001, 9_000, 300)
    lines = (f"{s:,}".replace(",", ".") + f";{3 * s + rng.integers(0, 9)}\n" for s in sizes)
    (tmp_path / "t.csv").write_text("size;price\n" + "".join(lines))
    (tmp_path / "euro.csv").write_text("size\n" + "".join(f"{european(s)}\n" for s in (1046.75, 2000.0)))
    (tmp_path / "points.csv").write_text("size\n1046.75\n2000.5\n")
    (tmp_path / "open.csv").write_text("size;n\n1.046;1\n2.000;2\n")

    def command(*words):
        done = CliRunner().invoke(app, list(words))
        assert "Traceback" not in done.output
        return done

    return command


def predicted(path="out.csv"):
    return pd.read_csv(path)["prediction"].tolist()


def test_predictions_are_never_a_thousand_times_too_large(run):
    done = run("fit", "t.csv", "--target", "price", "--out", "m")
    assert "size → number, thousands by '.'" in done.output
    assert (
        done.output.count("which is a guess: --decimal . reads it as") == 2
    )  # at the column, and at the end
    for name, sizes in {"euro.csv": (1046.75, 2000), "open.csv": (1046, 2000)}.items():
        assert run("predict", "m", name, "--out", "out.csv").exit_code == 0
        np.testing.assert_allclose(predicted(), [3 * s + 4 for s in sizes], rtol=0.01)
    refused = run("predict", "m", "points.csv", "--out", "no.csv")
    assert refused.exit_code == 1
    assert "shows that '.' is the decimal mark" in refused.output
    assert "fit it again with --decimal ." in refused.output
    assert run("predict", "m", "points.csv", "--decimal", ".", "--out", "out.csv").exit_code == 0
    np.testing.assert_allclose(predicted(), [3 * 1046.75 + 4, 3 * 2000.5 + 4], rtol=0.01)


def test_the_option_of_fit_turns_it_round(run):
    done = run("fit", "t.csv", "--target", "price", "--out", "m", "--decimal", ".")
    assert "guess" not in done.output
    done = run("predict", "m", "open.csv", "--out", "out.csv")
    assert "decimal" not in done.output
    np.testing.assert_allclose(predicted(), [3 * 1046 + 4, 3 * 2000 + 4], rtol=0.01)
    assert run("predict", "m", "points.csv", "--out", "out.csv").exit_code == 0
    assert min(predicted()) > 1e6  # 1046.75 is a thousand of what it learned, and that was asked for


@pytest.mark.parametrize("command", ["compare", "diagnose"])
def test_other_commands_say_it_too(run, command):
    assert "which is a guess: --decimal ." in run(command, "t.csv", "--target", "price").output


def test_json_says_it_beside_the_document(run):
    done = run("fit", "t.csv", "--target", "price", "--out", "m", "--json")
    assert "which is a guess: --decimal ." in done.stderr
    assert "guess" not in done.stdout


def frame(cells, count=60):
    return pd.DataFrame({"size": (cells * count)[:count]})


def test_the_same_in_python(tmp_path):
    cells = [f"{s:,}".replace(",", ".") for s in range(1_001, 9_000, 17)][:60]
    y = np.array([float(cell) for cell in cells])
    with pytest.warns(UserWarning, match="'1.001' is read as 1.001, which is a guess: decimal=',' reads it"):
        guessed = tp.TableRegressor(tp.DCSGDRegressor(k=1)).fit(frame(cells), y)
    with pytest.raises(BadFileError, match=r"shows that ',' is the decimal mark.*decimal=',' in Python"):
        guessed.predict(frame(["1.046,75"]))
    np.testing.assert_allclose(guessed.predict(frame(["1.046"])), 1.046, rtol=0.05)
    asked = tp.TableRegressor(tp.DCSGDRegressor(k=1), decimal=",").fit(frame(cells), y)
    np.testing.assert_allclose(asked.predict(frame(["1.046,75"])), 1.046, rtol=0.05)
    np.testing.assert_allclose(asked.predict(frame(["1.046"])), 1.046, rtol=0.05)
    (tmp_path / "new.csv").write_text("size;n\n1.046,75;1\n")
    np.testing.assert_allclose(tp.predict(asked, tmp_path / "new.csv"), 1.046, rtol=0.05)
    with pytest.raises(BadFileError, match="shows that ',' is the decimal mark"):
        tp.predict(guessed, tmp_path / "new.csv")


def test_a_mark_is_a_point_or_a_comma():
    with pytest.raises(ValueError, match=r"decimal must be '\.' or ','; got ';'"):
        tp.TableRegressor(decimal=";").fit(frame(["1"]), np.arange(60.0))


def test_models_remember_that_it_was_a_guess(tmp_path, run):
    run("fit", "t.csv", "--target", "price", "--out", "m")
    loaded = tp.load("m")
    assert loaded.dialect.guessed
    with pytest.raises(BadFileError, match="by a guess"):
        tp.predict(loaded, "points.csv")
    np.testing.assert_allclose(tp.predict(loaded, "euro.csv"), [3 * 1046.75 + 4, 6004], rtol=0.01)


def shares(cells):
    return "rate,y\n" + "".join(f"{cell},{j}\n" for j, cell in enumerate(cells))


PERCENT = [f"{j}.5%" for j in range(40)]
PLAIN = [f"{j}.5" for j in range(40)]
GRAMS, KILOGRAMS = ([f"{j}.5 {unit}" for j in range(40)] for unit in ("g", "kg"))


@pytest.mark.parametrize(
    ("learned", "new", "words"),
    [
        (
            PERCENT,
            PLAIN,
            "column 'rate' has no unit here, and was in '%' when the model learned: 5% is read as 0.05",
        ),
        (PLAIN, PERCENT, "column 'rate' is in '%' here, and had no unit when the model learned"),
        (GRAMS, KILOGRAMS, "column 'rate' is in 'kg' here, and was in 'g' when the model learned"),
        (GRAMS, PLAIN, ""),
        (PERCENT, PERCENT, ""),
        (PLAIN, PLAIN, ""),
    ],
)
def test_units_that_differ_are_said(learned, new, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(shares(learned))
    (tmp_path / "new.csv").write_text(shares(new))
    CliRunner().invoke(app, ["fit", "t.csv", "--target", "y", "--out", "m"])
    done = CliRunner().invoke(app, ["predict", "m", "new.csv", "--out", "out.csv"])
    assert done.exit_code == 0
    assert words in done.output
    assert ("when the model learned" in done.output) == bool(words)
    model = tp.TableRegressor(tp.DCSGDRegressor(k=1)).fit(pd.DataFrame({"rate": learned}), np.arange(40.0))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.predict(pd.DataFrame({"rate": new}))
        tp.predict(model, "new.csv")
    said = [str(item.message) for item in seen]
    of_sizes = [text for text in said if "check the unit" in text]
    assert [words in text for text in said if text not in of_sizes] == [True] * (2 if words else 0)
    # A factor of a hundred is remarked on by the size of the numbers, too, once for each table.
    assert len(of_sizes) == (2 if "%" in words else 0)


def test_numbers_of_a_frame_are_shares_already():
    model = tp.TableRegressor(tp.DCSGDRegressor(k=1)).fit(pd.DataFrame({"rate": PERCENT}), np.arange(40.0))
    shares_of_one = pd.DataFrame({"rate": [0.055, 0.125]})
    np.testing.assert_allclose(
        model.predict(shares_of_one), model.predict(pd.DataFrame({"rate": ["5.5%", "12.5%"]}))
    )


STYLES = [(".", ","), (",", "."), (".", ""), (",", ""), (".", "'"), (",", " ")]
RANGES = [(0, 5), (1, 900), (1e3, 9e5), (0, 5e6), (1, 9e3)]


def random_table(rng, count):
    """Columns of numbers of any size and precision."""
    columns = []
    for _ in range(count):
        digits, (low, high) = rng.choice([0, 0, 1, 2, 3]), RANGES[rng.integers(len(RANGES))]
        columns.append((np.round(rng.uniform(low, high, rng.integers(3, 60)), digits), digits))
    length = min(len(values) for values, _ in columns)
    return [(values[:length], digits) for values, digits in columns]


def written(columns, style, delimiter):
    decimal, thousands = style
    cells = [
        [f"{v:,.{digits}f}".translate({ord(","): thousands, ord("."): decimal}) for v in values]
        for values, digits in columns
    ]
    quoted = [[f'"{cell}"' if delimiter in cell else cell for cell in column] for column in cells]
    rows = map(delimiter.join, zip(*quoted, strict=True))
    return "\n".join([delimiter.join(f"c{j}" for j in range(len(columns))), *rows]) + "\n"


def outcome(folder, content, columns, given):
    """What was read and how: rightly, or with a warning or a note, or not at all."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found = read(folder, content, given)
        except BadFileError:
            return "refused", None
    names = [f"c{j}" for j in range(len(columns))]
    right = found.table.column_names == names and all(
        np.allclose(
            np.asarray(found.table.column(name).to_pylist(), dtype=float), values, rtol=1e-9, atol=1e-9
        )
        for name, (values, _) in zip(names, columns, strict=True)
    )
    return ("right" if right else "said" if seen or found.notes else "silently wrong"), found.dialect


@pytest.mark.parametrize("seed", range(3))
def test_no_number_is_silently_wrong(seed, tmp_path):
    """Random numbers in random styles, and others, of the same decimal mark, for a model of the first."""
    rng, outcomes = np.random.default_rng(seed), []
    for _ in range(60):
        width, given, first = rng.integers(1, 4), Dialect(), int(rng.integers(len(STYLES)))
        for place in (first, (first + 2 * rng.integers(3)) % len(STYLES)):
            columns, style = random_table(rng, width), STYLES[place]
            content = written(columns, style, str(rng.choice([",", ";", "\t", "|"])))
            found, learned = outcome(tmp_path, content, columns, given)
            outcomes.append(found)
            given = given if learned is None else learned.as_learned
    assert "silently wrong" not in outcomes
    assert outcomes.count("right") > 0.8 * len(outcomes)
