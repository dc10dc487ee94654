import datetime as dt
import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from tailproof.data.readers.files import BadFileError, open_files
from tailproof.data.readers.formats import FORMATS
from tailproof.tables.dialect import Dialect
from tailproof.tables.reading import WRITERS, read_files, read_table

TABLE = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_every_format_gives_the_same_table(tmp_path):
    pq.write_table(TABLE, tmp_path / "t.parquet")
    feather.write_feather(TABLE, tmp_path / "t.feather")
    with pa.ipc.new_file(tmp_path / "t.arrow", TABLE.schema) as file:
        file.write_table(TABLE)
    write(tmp_path / "t.csv", "a,b\n1,x\n2,y\n3,\n")
    write(tmp_path / "t.tsv", "a\tb\n1\tx\n2\ty\n3\tNA\n")
    write(tmp_path / "semicolon.csv", "a;b\n1;x\n2;y\n3;?\n")
    for name in ("t.parquet", "t.feather", "t.arrow", "t.csv", "t.tsv"):
        assert read_table(tmp_path / name).to_pylist() == TABLE.to_pylist(), name
    assert read_table(tmp_path / "semicolon.csv", ";").to_pylist() == TABLE.to_pylist()


def test_globs_folders_and_lists(tmp_path):
    (tmp_path / "in").mkdir()
    for j in range(3):
        write(tmp_path / f"part-{j}.csv", f"a,b\n{j},x\n")
    write(tmp_path / "in" / "more.csv", "b,a\nx,1.5\n")
    write(tmp_path / "notes.md", "no data")
    assert read_table(str(tmp_path / "part-*.csv")).column("a").to_pylist() == [0, 1, 2]
    assert read_table(tmp_path).num_rows == 4
    both = read_table([tmp_path / "in", tmp_path / "part-2.csv"])
    assert sorted(both.column("a").to_pylist()) == [1.5, 2.0]


@pytest.mark.parametrize("ending", FORMATS)
def test_folders_and_globs_of_every_ending(tmp_path, ending):
    folder = tmp_path / "in" / f"spark{ending}"  # a folder may have the name of a file
    folder.mkdir(parents=True)
    for j in range(3):
        columns = {"a": [j, j], "b": ["x", "y"]}
        (folder / f"{j}{ending}").write_bytes(WRITERS[FORMATS[ending]](columns))
        (folder / f".{j}{ending}").write_bytes(b"half a file")
    for name in (
        tmp_path,
        tmp_path / "in" / "*",
        tmp_path / "**",
        folder / f"*{ending}",
        folder / f"[0-2]{ending}",
    ):
        assert read_table(str(name)).column("a").to_pylist() == [0, 0, 1, 1, 2, 2]
        assert sum(open_files(str(name)).rows) == 6
    (batch,) = open_files(folder).read(1, ["b"], 10)
    assert batch.column("b").to_pylist() == ["x", "y"]


def test_columns_that_turn_out_wider_after_a_megabyte(tmp_path):
    lines = [f"{j},{j},plain" for j in range(150_000)]
    late = write(tmp_path / "late.csv", "\n".join(["a,b,c", *lines, "0.5,oops,plain"]))
    table = read_table(late)
    assert table.column("a").type == pa.float64()
    assert table.column("a")[-1].as_py() == 0.5
    assert table.column("b")[-1].as_py() == "oops"


def test_byte_order_mark_and_quotes(tmp_path):
    path = write(tmp_path / "t.csv", '\ufeff"a, b",c\n"1,5",2\n')
    assert read_table(path).to_pylist() == [{"a, b": 1.5, "c": 2}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,b\n", "no rows"),
        ("t.csv", b"a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("t.csv", b"a,a\n1,2\n", "two columns named 'a'"),
        ("t.csv", b"PK\0\0\0\0", "not a text file"),
        ("t.parquet", b"not parquet", "cannot read"),
        ("t.parquet", b"PAR1", "cannot read"),
        ("t.arrow", b"not arrow", "cannot read"),
        ("t.feather", gzip.compress(b"x", mtime=0), "cannot read"),
        ("t.xlsx", b"PK", "cannot read"),
        ("t.xls", b"PK", "files end in"),
        ("noending", b"a,b\n1,2\n", "files end in"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadFileError, match=message) as caught:
        read_table(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_files_that_do_not_fit_together(tmp_path):
    write(tmp_path / "1.csv", "a,b\n1,2\n")
    write(tmp_path / "2.csv", "a,c\n1,2\n")
    with pytest.raises(BadFileError, match=r"1.csv has a column 'b', and .*2.csv has none"):
        read_table(tmp_path)
    write(tmp_path / "2.csv", "a,b\n1,text\n")
    with pytest.raises(
        BadFileError, match="column 'b' holds number in one file, and category in another: write it alike"
    ):
        read_table(tmp_path)


def test_nothing_there(tmp_path):
    write(tmp_path / "some.csv", "a\n1\n")
    (tmp_path / "in").mkdir()
    for name, message in {
        "missing.csv": r"there is no file or folder .*missing\.csv",
        "in": r"the folder .*in holds no file that ends in \.parquet, .*\.tsv",
        "*.tsv": r"no file matches '.*\*\.tsv'; .* end in \.parquet",
    }.items():
        # One that is there does not make up for one that is not.
        for data in (tmp_path / name, [tmp_path / "some.csv", tmp_path / name]):
            with pytest.raises(FileNotFoundError, match=message):
                read_table(data)
            with pytest.raises(FileNotFoundError, match=message):
                open_files(data)


def test_names_of_folders_are_columns(tmp_path):
    for place, folder in enumerate(
        ["day=1/shop=a%20b", "day=2/shop=7", "day=__HIVE_DEFAULT_PARTITION__/shop=8"]
    ):
        (tmp_path / folder).mkdir(parents=True)
        write(tmp_path / folder / "a.csv", f"x\n{place}\n")
    table = read_table(tmp_path)
    assert table.to_pydict() == {"x": [0, 1, 2], "day": [1, 2, None], "shop": ["a b", "7", "8"]}
    assert read_table(tmp_path, columns=["day", "x"]).to_pydict() == {"day": [1, 2, None], "x": [0, 1, 2]}
    assert read_table(tmp_path, columns=["day"]).to_pydict() == {"day": [1, 2, None]}
    assert read_table(tmp_path, columns=["x"]).column_names == ["x"]


def test_names_of_folders_stay_text_where_the_model_learned_text(tmp_path):
    (tmp_path / "shop=7").mkdir()
    write(tmp_path / "shop=7" / "a.csv", "x\n1\n")
    assert read_files(tmp_path, Dialect(), as_text=["shop"]).table.to_pylist() == [{"x": 1, "shop": "7"}]


def test_a_column_of_the_file_comes_before_that_of_its_folder(tmp_path):
    (tmp_path / "x=7").mkdir()
    write(tmp_path / "x=7" / "a.csv", "x\n1\n")
    assert read_table(tmp_path).to_pylist() == [{"x": 1}]


def test_dates_and_points_of_time_go_together(tmp_path):
    write(tmp_path / "1.csv", "d,b\n2024-01-31,2\n")
    write(tmp_path / "2.csv", "d,b\n2024-01-31 12:00:00,2\n")
    write(tmp_path / "3.csv", "d,b\n31.01.2024,2\n")
    noon, day = dt.datetime(2024, 1, 31, 12), dt.datetime(2024, 1, 31)
    assert read_table(tmp_path).column("d").to_pylist() == [day, noon, day]
    pq.write_table(
        pa.table({"d": pa.array([noon], pa.timestamp("us", tz="UTC")), "b": [2]}), tmp_path / "4.parquet"
    )
    with pytest.raises(
        BadFileError, match="'d' holds date in one file, and date in the time zone UTC in another"
    ):
        read_table([tmp_path / "2.csv", tmp_path / "4.parquet"])


def test_single_quotes_around_delimiters_are_refused_with_what_to_do(tmp_path):
    lines = [f"'x, {j}',{j},'{j},5'" for j in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["a,b,y", *lines]))
    with pytest.raises(BadFileError, match=r"',' within single quotes.* write double ones"):
        read_table(tmp_path / "a.csv")
