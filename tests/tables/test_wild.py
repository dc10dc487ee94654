"""Files as they are found in the wild: the right columns, or one sentence that says what to do."""

import bz2
import codecs
import datetime as dt
import gzip
import io
import json
import zipfile

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from tailproof.data.readers.files import BadFileError
from tailproof.tables import prepare, read_table
from tailproof.tables.dialect import Dialect
from tailproof.tables.model import fit_table
from tailproof.tables.reading import read_files

NEW_YEAR = dt.datetime(1999, 12, 31)
SPRING = dt.datetime(2004, 3, 2)
SIZES = {"size": [1.5, 2.25, 1234.5]}
WHOLE = {"n": [1, 22, 333]}
TWO = {"x": [1.5, 2.5], "y": [1, 2]}
LAST_MONTH, MARCH = dt.datetime(1999, 12, 1), dt.datetime(2004, 3, 1)


def excel(*rows, sheets=("data",)):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name in sheets:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def zipped(*files):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, content in files:
            archive.writestr(name, content)
    return sink.getvalue()


def packed_arrow(write):
    sink = io.BytesIO()
    write(pa.table({"size": [1.5, 2.25, 1234.5], "name": ["a", "b", "c"]}), sink)
    return sink.getvalue()


PLAIN = "size,name\n1.5,a\n2.25,b\n1234.5,c\n"
NAMED = SIZES | {"name": ["a", "b", "c"]}
EURO = "size;name\n1,5;a\n2,25;b\n1.234,5;c\n"

# Name of the file, its content, and the columns that must come out.
GOOD = {
    "one column of amounts": ("t.csv", "x\n€ 1.234,50\n€ 0,25\n", {"x": [1234.5, 0.25]}),
    "one column, blanks between thousands": ("t.csv", "x\n1 234,50\n0,25\n", {"x": [1234.5, 0.25]}),
    "one column, commas between thousands": ("t.csv", "x\n1,234.50\n12\n0.25\n", {"x": [1234.5, 12.0, 0.25]}),
    "names of groups above names": (
        "t.csv",
        "size,,what,\nx,y,name,kind\n1.5,1,a,b\n2.5,2,c,d\n",
        TWO | {"name": ["a", "c"], "kind": ["b", "d"]},
    ),
    "exponents behind three digits": ("t.csv", "x;y\n1,500e0;1\n2,500e0;2\n", TWO),
    "plain": ("t.csv", PLAIN, NAMED),
    "semicolons and decimal commas": ("t.csv", EURO, NAMED),
    "semicolons and points": ("t.csv", PLAIN.replace(",", ";"), NAMED),
    "tabs in a csv": ("t.csv", PLAIN.replace(",", "\t"), NAMED),
    "tabs and decimal commas": ("t.tsv", EURO.replace(";", "\t"), NAMED),
    "bars": ("t.csv", PLAIN.replace(",", "|"), NAMED),
    "a txt": ("t.txt", PLAIN, NAMED),
    "windows line ends": ("t.csv", PLAIN.replace("\n", "\r\n"), NAMED),
    "no line end at the end": ("t.csv", PLAIN.rstrip("\n"), NAMED),
    "blank lines": ("t.csv", PLAIN.replace("\n", "\n\n"), NAMED),
    "byte order mark": ("t.csv", "\ufeff" + PLAIN, NAMED),
    "UTF-16 of Windows": ("t.csv", codecs.BOM_UTF16_LE + EURO.encode("utf-16-le"), NAMED),
    "UTF-16 the other way round": ("t.csv", codecs.BOM_UTF16_BE + PLAIN.encode("utf-16-be"), NAMED),
    "UTF-16 without a mark": ("t.csv", PLAIN.encode("utf-16-le"), NAMED),
    "latin-1": (
        "t.csv",
        "größe,name\n1.5,ä\n2.5,ö\n".encode("latin-1"),
        {"größe": [1.5, 2.5], "name": ["ä", "ö"]},
    ),
    "windows-1252": ("t.csv", "n;x\n€ 1;“a”\n€ 2;b\n".encode("cp1252"), {"n": [1.0, 2.0], "x": ["“a”", "b"]}),
    "latin-1 after a megabyte": (
        "t.csv",
        ("x,name\n" + "1,a\n" * 300_000 + "2,ä\n").encode("latin-1"),
        {"x": [*[1] * 300_000, 2], "name": [*["a"] * 300_000, "ä"]},
    ),
    "a preamble": ("t.csv", "Report of May\n\n" + PLAIN, NAMED),
    "a preamble of several lines": ("t.csv", "Report\nof May\nby me\n" + EURO, NAMED),
    "excel's own hint": ("t.csv", "sep=;\n" + EURO, NAMED),
    "quotes": ("t.csv", '"size","name"\n"1.5","a"\n"2.25","b"\n"1,234.5","c"\n', NAMED),
    "commas in quotes": ("t.csv", 'x,name\n1,"a, b"\n2,"c, d"\n', {"x": [1, 2], "name": ["a, b", "c, d"]}),
    "line ends in quotes": ("t.csv", 'x,name\n1,"a\nb"\n2,"c"\n', {"x": [1, 2], "name": ["a\nb", "c"]}),
    "doubled quotes": ("t.csv", 'x,name\n1,"say ""a"""\n2,b\n', {"x": [1, 2], "name": ['say "a"', "b"]}),
    "gzip": ("t.csv.gz", gzip.compress(PLAIN.encode()), NAMED),
    "bzip2": ("t.csv.bz2", bz2.compress(EURO.encode()), NAMED),
    "gzip without saying so": ("t.csv", gzip.compress(PLAIN.encode()), NAMED),
    "json lines": (
        "t.jsonl",
        "\n".join(json.dumps({"size": s, "name": n}) for s, n in zip(*NAMED.values(), strict=True)),
        NAMED,
    ),
    "json lines, packed": ("t.ndjson.gz", gzip.compress(b'{"n": 1}\n{"n": 22}\n{"n": 333}\n'), WHOLE),
    "json lines with amounts": (
        "t.jsonl",
        '{"n": "$1"}\n{"n": "$22"}\n{"n": "$333"}\n',
        {"n": [1.0, 22.0, 333.0]},
    ),
    "excel": ("t.xlsx", excel(["size", "name"], [1.5, "a"], [2.25, "b"], [1234.5, "c"]), NAMED),
    "excel with a title": (
        "t.xlsx",
        excel(["Report"], [], ["size", "name"], [1.5, "a"], [2.25, "b"], [1234.5, "c"]),
        NAMED,
    ),
    "excel with dates": ("t.xlsx", excel(["d"], [NEW_YEAR], [SPRING]), {"d": [NEW_YEAR, SPRING]}),
    "excel with whole and other numbers": ("t.xlsx", excel(["x"], [1], [2.5]), {"x": [1.0, 2.5]}),
    "excel with amounts as text": ("t.xlsx", excel(["x"], ["$1,000.50"], ["$2"]), {"x": [1000.5, 2.0]}),
    "parquet": ("t.parquet", packed_arrow(pq.write_table), NAMED),
    "parquet named csv": ("t.csv", packed_arrow(pq.write_table), NAMED),
    "feather": ("t.feather", packed_arrow(feather.write_feather), NAMED),
    "dollars": ("t.csv", 'x\n"$543,421.24"\n$12\n-$3.5\n', {"x": [543421.24, 12.0, -3.5]}),
    "euros behind": ("t.csv", "x;y\n12,50 €;1\n1.000,00 €;2\n", {"x": [12.5, 1000.0], "y": [1, 2]}),
    "codes of currencies": ("t.csv", "x;y\nCHF 12.50;1\n30.25 EUR;2\n", {"x": [12.5, 30.25], "y": [1, 2]}),
    "thousands by blanks": (
        "t.csv",
        "x;y\n1 234,5;1\n12 345 678,25;2\n",
        {"x": [1234.5, 12345678.25], "y": [1, 2]},
    ),
    "thousands by narrow blanks": (
        "t.csv",
        "x;y\n1\u202f234,5;1\n2,5;2\n",
        {"x": [1234.5, 2.5], "y": [1, 2]},
    ),
    "thousands by apostrophes": (
        "t.csv",
        "x,y\n1'234.5,1\n2'000'000.5,2\n",
        {"x": [1234.5, 2000000.5], "y": [1, 2]},
    ),
    "thousands of India": ("t.csv", 'x\n"12,34,567.5"\n"1,234.5"\n', {"x": [1234567.5, 1234.5]}),
    "thousands without decimals": (
        "t.csv",
        'x,y\n"1,234",1.5\n"12,345",2.5\n',
        {"x": [1234.0, 12345.0], "y": [1.5, 2.5]},
    ),
    "points that are thousands": (
        "t.csv",
        "x;y\n1.234;1,5\n12.345;2,5\n",
        {"x": [1234.0, 12345.0], "y": [1.5, 2.5]},
    ),
    "percent": ("t.csv", "x,y\n5%,1\n12.5 %,2\n", {"x": [0.05, 0.125], "y": [1, 2]}),
    "losses in brackets": ("t.csv", 'x,y\n"(1,234.50)",1\n10.25,2\n', {"x": [-1234.5, 10.25], "y": [1, 2]}),
    "a minus behind": ("t.csv", "x;y\n12,50-;1\n1,25;2\n", {"x": [-12.5, 1.25], "y": [1, 2]}),
    "a minus of typesetters": ("t.csv", "x,y\n\u22121.5,1\n2.5,2\n", {"x": [-1.5, 2.5], "y": [1, 2]}),
    "powers of ten": ("t.csv", "x,y\n1e3,1\n2.5E-2,2\n", {"x": [1000.0, 0.025], "y": [1, 2]}),
    "a dash for missing": ("t.csv", "x,y\n1.5,1\n-,2\n2.5,3\n", {"x": [1.5, None, 2.5], "y": [1, 2, 3]}),
    "many words for missing": (
        "t.csv",
        "x,y\n1.5,1\nn.a.,2\nNULL,3\n#DIV/0!,4\n.,5\n,6\n",
        {"x": [1.5, *[None] * 5], "y": [1, 2, 3, 4, 5, 6]},
    ),
    "days first": ("t.csv", "d,y\n31/12/1999,1\n02/03/2004,2\n", {"d": [NEW_YEAR, SPRING], "y": [1, 2]}),
    "months first": ("t.csv", "d,y\n12/31/1999,1\n03/02/2004,2\n", {"d": [NEW_YEAR, SPRING], "y": [1, 2]}),
    "dates with points": ("t.csv", "d;y\n31.12.1999;1\n2.3.2004;2\n", {"d": [NEW_YEAR, SPRING], "y": [1, 2]}),
    "dates with points in doubt": (
        "t.csv",
        "d;y\n1.2.1999;1\n2.3.2004;2\n",
        {"d": [dt.datetime(1999, 2, 1), SPRING], "y": [1, 2]},
    ),
    "dates with names of months": (
        "t.csv",
        "d,y\n31 Dec 1999,1\n2-Mar-2004,2\n",
        {"d": [NEW_YEAR, SPRING], "y": [1, 2]},
    ),
    "dates of America": (
        "t.csv",
        'd,y\n"December 31, 1999",1\n"Mar 2, 2004",2\n',
        {"d": [NEW_YEAR, SPRING], "y": [1, 2]},
    ),
    "dates of several forms": (
        "t.csv",
        "d,y\n1999-12-31,1\n02/03/2004,2\n31.12.1999,3\n",
        {"d": [NEW_YEAR, SPRING, NEW_YEAR], "y": [1, 2, 3]},
    ),
    "years of two digits": ("t.csv", "d,y\n31/12/99,1\n02/03/04,2\n", {"d": [NEW_YEAR, SPRING], "y": [1, 2]}),
    "times of day": (
        "t.csv",
        "d,y\n31/12/1999 23:15,1\n02/03/2004 01:02,2\n",
        {"d": [dt.datetime(1999, 12, 31, 23, 15), dt.datetime(2004, 3, 2, 1, 2)], "y": [1, 2]},
    ),
    "line ends in the quotes of most lines": (
        "t.csv",
        'x,note,y\n1.5,"a\nb",1\n2.5,"c\nd",2\n',
        {"x": [1.5, 2.5], "note": ["a\nb", "c\nd"], "y": [1, 2]},
    ),
    "line ends in quotes below a title": (
        "t.csv",
        'Report\n\nx,note,y\n1.5,"a\nb",1\n2.5,"c\nd",2\n',
        {"x": [1.5, 2.5], "note": ["a\nb", "c\nd"], "y": [1, 2]},
    ),
    "dates with some missing": ("t.csv", "d,y\n31/12/1999,1\n-,2\n", {"d": [NEW_YEAR, None], "y": [1, 2]}),
    "postcodes": ("t.csv", "zip,y\n01234,1\n98765,2\n", {"zip": ["01234", "98765"], "y": [1, 2]}),
    "telephone numbers": (
        "t.csv",
        "tel,y\n+49 30 1234,1\n030-1234,2\n",
        {"tel": ["+49 30 1234", "030-1234"], "y": [1, 2]},
    ),
    "an empty column": ("t.csv", "x,none\n1,\n2,\n", {"x": [1, 2], "none": [None, None]}),
    "a column without a name": ("t.csv", ",x\n0,1.5\n1,2.5\n", {"column 1": [0, 1], "x": [1.5, 2.5]}),
    "blanks around": ("t.csv", "x,y\n 1.5 ,1\n 2.5,2\n", {"x": [1.5, 2.5], "y": [1, 2]}),
    "names that look like versions": (
        "t.csv",
        "v,y\n1.2.3,1\n1.2.4,2\n",
        {"v": ["1.2.3", "1.2.4"], "y": [1, 2]},
    ),
    "one column": ("t.csv", "n\n1\n22\n333\n", WHOLE),
    "one column of decimal commas": ("t.csv", "x\n0,5\n1,25\n", {"x": [0.5, 1.25]}),
    "a delimiter at the end of each line": (
        "t.csv",
        "x,y,\n1.5,1,\n2.5,2,\n",
        TWO | {"column 3": [None, None]},
    ),
    "a delimiter at the end of rows alone": (
        "t.csv",
        "x,y\n1.5,1,\n2.5,2,\n",
        TWO | {"column 3": [None, None]},
    ),
    "names of rows, as R writes them": ("t.csv", "x,y\na,1.5,1\nb,2.5,2\n", {"column 1": ["a", "b"]} | TWO),
    "blanks around names": ("t.csv", " x , y \n1.5,1\n2.5,2\n", TWO),
    "a line end in a name": (
        "t.csv",
        '"gross\nsum",y\n1.5,1\n2.5,2\n',
        {"gross\nsum": [1.5, 2.5], "y": [1, 2]},
    ),
    "blanks as delimiters": ("t.txt", "x y\n1.5 1\n2.5 2\n", TWO),
    "line ends of an old Mac": ("t.csv", "x,y\r1.5,1\r2.5,2\r", TWO),
    "answers in many spellings": (
        "t.csv",
        "b\nyes\nTRUE\nn\n0\n-\n",
        {"b": [True, True, False, False, None]},
    ),
    "answers that are codes": ("t.csv", "b\nT\nF\nN\n", {"b": ["T", "F", "N"]}),
    "errors of spreadsheets": (
        "t.csv",
        "x\n1.5\n#NULL!\n#SPILL!\n<NA>\n#N/A\n",
        {"x": [1.5, None, None, None, None]},
    ),
    "text as spreadsheets mark it": (
        "t.csv",
        'x,z\n\'1.5,"=""01"""\n2.5,7\n',
        {"x": [1.5, 2.5], "z": ['="01"', "7"]},
    ),
    "losses of accountants": ("t.csv", 'x\n"$ (1,234.50)"\n$ 2\n', {"x": [-1234.5, 2.0]}),
    "crowns and forints": ("t.csv", "x;y\n1,50 Kč;1\n20 HUF;2\n", {"x": [1.5, 20.0], "y": [1, 2]}),
    "one unit": ("t.csv", "x,y\n1.5 kg,1\n2.5kg,2\n", TWO),
    "accounts": (
        "t.csv",
        f"n\n{10**20}\n{10**20 + 1}\n",
        {"n": [str(10**20), str(10**20 + 1)]},
    ),
    "months alone": ("t.csv", "d\n1999-12\n03/2004\nMar 2004\n", {"d": [LAST_MONTH, MARCH, MARCH]}),
    "months of databases": (
        "t.csv",
        "d\n31-DEC-1999\n02MAR2004\n0000-00-00\n",
        {"d": [NEW_YEAR, SPRING, None]},
    ),
    "months of other languages": (
        "t.csv",
        "d;y\n31. Dezember 1999;1\n2 mars 2004;2\n2. März 2004;3\n31 dic 1999;4\n",
        {"d": [NEW_YEAR, SPRING, SPRING, NEW_YEAR], "y": [1, 2, 3, 4]},
    ),
    "days of the week": ("t.csv", 'd\n"Fri, 31 Dec 1999"\nTue 2 Mar 2004\n', {"d": [NEW_YEAR, SPRING]}),
    "fractions of seconds": (
        "t.csv",
        "d\n31/12/1999 23:15:01.25\n",
        {"d": [dt.datetime(1999, 12, 31, 23, 15, 1)]},
    ),
    "lengths of time": (
        "t.csv",
        "t\n0:30\n125:00:01\n",
        {"t": [dt.timedelta(hours=0.5), dt.timedelta(0, 450_001)]},
    ),
    "a list of json records": ("t.json", '[{"n": 1}, {"n": 22}, {"n": 333}]', WHOLE),
    "json of mixed types": ("t.jsonl", '{"x": 1.5}\n{"x": "2.5"}\n', {"x": [1.5, 2.5]}),
    "nested json": ("t.jsonl", '{"a": {"n": 1}}\n{"a": {"n": 22}}\n', {"a.n": [1, 22]}),
    "zip": ("t.zip", zipped(("t.csv", EURO)), NAMED),
    "zip without saying so": ("t.csv", zipped(("t.csv", PLAIN)), NAMED),
    "a semicolon in one cell": (
        "t.csv",
        "x,name\n1,a;b\n2,c\n3,d\n",
        {"x": [1, 2, 3], "name": ["a;b", "c", "d"]},
    ),
}

BAD = {
    "nothing but ends of lines": ("t.csv", "\n\r\n \n", r"t\.csv is empty$"),
    "nothing but a byte order mark": ("t.csv", codecs.BOM_UTF8, r"t\.csv is empty$"),
    "empty": ("t.csv", "", "is empty"),
    "a header alone": ("t.csv", "a,b\n", "has a header, but no rows"),
    "ragged": ("t.csv", "a,b\n1,2\n3,4\n1,2,3\n", "Expected 2 columns, got 3"),
    "two columns of one name": ("t.csv", "a,a\n1,2\n", "two columns named 'a'"),
    "bytes": ("t.csv", bytes(range(256)) * 20, "is not a text file"),
    "no header": ("t.csv", "1.5,2,1\n2.5,3,1\n", "begins with numbers: put a line with the names"),
    "cells without a name": ("t.csv", "x,name\n1,'a, b'\n2,'c, d'\n", "2 names in its header and 3 cells"),
    "a note at the end": ("t.csv", PLAIN + "made by me\n", "got 1: made by me: correct or remove that line"),
    "excel with two columns of one name": ("t.xlsx", excel(["a", "a"], [1, 2]), "two columns named 'a'"),
    "several files in a zip": (
        "t.zip",
        zipped(("a.csv", PLAIN), ("b.csv", PLAIN)),
        "holds 2 files: unpack it",
    ),
    "a zip of something else": ("t.zip", zipped(("a.doc", PLAIN)), "holds a.doc, which is no table"),
    "a broken zip": ("t.zip", b"PK\x03\x04 nothing", "cannot unpack"),
    "json that is no table": ("t.json", "[1, 2]", "must hold a list of records"),
    "old excel": ("t.xls", b"\xd0\xcf\x11\xe0 old", "files end in .*convert or rename"),
    "no ending": ("noending", PLAIN, "files end in"),
    "excel that is none": ("t.xlsx", b"PK\x03\x04 nothing", "cannot read .* as an Excel file"),
    "a first sheet of notes": (
        "t.xlsx",
        excel(["notes"], sheets=("notes", "data")),
        "no rows in sheet 'notes': choose another by --sheet, of notes, data",
    ),
    "an empty sheet": ("t.xlsx", excel(), "has no rows in sheet 'data'$"),
    "gzip cut off": ("t.csv.gz", gzip.compress(PLAIN.encode() * 100)[:60], "cannot read"),
    "json that is none": ("t.jsonl", "{", "cannot read"),
    "parquet cut off": ("t.parquet", packed_arrow(pq.write_table)[:80], "cannot read"),
}


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("case", GOOD)
def test_the_right_columns(case, tmp_path):
    name, content, columns = GOOD[case]
    found = read_table(write(tmp_path, name, content))
    assert found.column_names == list(columns)
    assert found.to_pydict() == columns


def test_zstandard(tmp_path):
    (tmp_path / "t.csv").write_text(PLAIN)
    with (
        pa.OSFile(str(tmp_path / "t.csv.zst"), "wb") as file,
        pa.CompressedOutputStream(file, "zstd") as packed,
    ):
        packed.write(PLAIN.encode())
    assert read_table(tmp_path / "t.csv.zst").to_pydict() == NAMED


@pytest.mark.parametrize("case", BAD)
def test_one_sentence(case, tmp_path):
    name, content, words = BAD[case]
    with pytest.raises(BadFileError, match=words) as caught:
        read_table(write(tmp_path, name, content))
    assert "\n" not in str(caught.value)


def test_there_are_sixty_of_them():
    assert len(GOOD) + len(BAD) >= 60


@pytest.mark.parametrize(
    ("content", "options", "columns"),
    [
        ("x;y\n1,234;1\n2,345;2\n", {"decimal": "."}, {"x": [1234.0, 2345.0], "y": [1, 2]}),
        ("x,y\n1.234,1\n2.345,2\n", {"decimal": ",", "delimiter": ","}, {"x": [1234.0, 2345.0], "y": [1, 2]}),
        ("x_y\n1_2\n3_4\n", {"delimiter": "_"}, {"x": [1, 3], "y": [2, 4]}),
        ("x,y\n1.5,1\nlost,2\n", {"missing": ("lost",)}, {"x": [1.5, None], "y": [1, 2]}),
        ("d,y\n01/02/2003,1\n03/04/2005,2\n", {"date_format": "%d/%m/%Y"},
         {"d": [dt.datetime(2003, 2, 1), dt.datetime(2005, 4, 3)], "y": [1, 2]}),
        ("x,y\n1.5,1\n-999,2\n", {"missing": ("-999",)}, {"x": [1.5, None], "y": [1, 2]}),
        ("d,y\n20030201,1\n20050403,2\n", {"date_format": "%Y%m%d"},
         {"d": [dt.datetime(2003, 2, 1), dt.datetime(2005, 4, 3)], "y": [1, 2]}),
        ("d,y\n20030201,1\n20050403,2\n", {}, {"d": [20030201, 20050403], "y": [1, 2]}),
    ],
)  # fmt: skip
def test_options_override_what_is_found(content, options, columns, tmp_path):
    assert read_table(write(tmp_path, "t.csv", content), **options).to_pydict() == columns


def test_sheets_have_names(tmp_path):
    path = write(tmp_path, "t.xlsx", excel(["n"], [1], [22], [333], sheets=("first", "second")))
    assert read_table(path, sheet="second").to_pydict() == WHOLE
    with pytest.raises(BadFileError, match="has no sheet 'third': there are first, second"):
        read_table(path, sheet="third")


def test_encodings_can_be_named(tmp_path):
    path = write(tmp_path, "t.csv", "x,name\n1,Ж\n2,б\n".encode("koi8-r"))
    assert read_table(path, encoding="koi8-r").column("name").to_pylist() == ["Ж", "б"]
    with pytest.raises(BadFileError, match=r"cannot be read as utf-8.*--encoding"):
        read_table(path, encoding="utf-8")


def test_remarks(tmp_path):
    text = (
        "id,zip,amount,x\n"
        + "".join(f"{j + 100},0{j:04d},{j}.5,{j % 3}\n" for j in range(30))
        + "130,01,oops,1\n"
    )
    read = read_files(write(tmp_path, "t.csv", text), Dialect())
    remarks = {column.name: column.remark for column in read.columns}
    assert "a different number in every row" in remarks["id"]
    assert "leading zeros" in remarks["zip"]
    assert "mostly numbers, but 'oops' is none: --na 'oops'" in remarks["amount"]
    assert remarks["x"] == ""


@pytest.mark.parametrize(
    ("cells", "words", "remark"),
    [
        (["1.5", "2,5", "3.5"], "category", "numbers of two styles, such as '1.5' and '2,5'"),
        (["1.5", "2.5", "<0.5"], "category", "mostly numbers, but '<0.5' is none"),
        (["1.5K", "2M", "3M"], "category", "numbers of different units, such as '1.5K' and '3M'"),
        (["5%", "0.1"], "number", "some cells have a %, others none"),
        (["3/4/2020", "5/6/2020"], "date, month first", "each could be read the other way round"),
        (["30/4/2020", "5/6/2020"], "date, day first", ""),
        (["30/4/2020", "31/4/2020", "5/6/2020"], "category", "mostly dates, but '31/4/2020' is none"),
        (["2023-02-28", "2023-02-29", "2023-03-01"], "category", "mostly dates, but '2023-02-29' is none"),
        (["31 Apr 2020", "1 May 2020", "2 May 2020"], "category", "mostly dates, but '31 Apr 2020' is none"),
        (["1/2/2031 5:30 pm", "2/13/2030 5:29 am"], "date, month first", ""),
        (["20200131", "20210228"], "whole number", "--date-format %Y%m%d reads them"),
        (["20200131", "20211328"], "whole number", ""),
        (["12:30", "13:30"], "time of day", ""),
        (["a", "b"], "category", ""),
    ],
)  # fmt: skip
def test_what_is_in_doubt_is_said(cells, words, remark, tmp_path):
    path = write(tmp_path, "t.csv", "x;y\n" + "".join(f"{cell};1\n" for cell in cells))
    column = read_files(path, Dialect()).columns[0]
    assert column.words == words
    assert (remark in column.remark) if remark else (column.remark == "")


SECOND_OF_MARCH, THIRD_OF_FEBRUARY = dt.datetime(2024, 3, 2), dt.datetime(2024, 2, 3)


@pytest.mark.parametrize(
    ("content", "first", "shown"),
    [
        ("day;x\n2024-03-02;1,5\n2024-03-30;2,5\n", SECOND_OF_MARCH, None),
        ("day;x\n02/03/2024;1,5\n04/05/2024;2,5\n", SECOND_OF_MARCH, None),
        ("day;x\n02/03/2024;1.5\n04/05/2024;2.5\n", THIRD_OF_FEBRUARY, None),
        ("day;x\n02.03.2024;1.5\n04.05.2024;2.5\n", SECOND_OF_MARCH, True),
        ("day;x\n02/03/2024;1.5\n14/05/2024;2.5\n", SECOND_OF_MARCH, True),
        ("day;x\n02/03/2024;1,5\n04/15/2024;2,5\n", THIRD_OF_FEBRUARY, False),
    ],
)
def test_an_order_of_dates_is_remembered_where_it_was_shown(content, first, shown, tmp_path):
    """Decimal commas suggest one for their own file, and for no other."""
    read = read_files(write(tmp_path, "t.csv", content), Dialect())
    assert read.table.column("day").to_pylist()[0] in (first, first.date())
    assert read.dialect.day_first is shown


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_dates_of_a_file_are_read_without_the_decimal_comma_of_the_model(ending, tmp_path):
    content = {"csv": "day,x\n02/03/2024,1\n04/05/2024,2\n", "jsonl": '{"day": "02/03/2024"}\n'}[ending]
    table = read_files(write(tmp_path, f"t.{ending}", content), Dialect(decimal=",")).table
    assert table.column("day").to_pylist()[0] == THIRD_OF_FEBRUARY


def test_marks_are_those_of_any_file_that_shows_them(tmp_path):
    plain = write(tmp_path, "plain.csv", "day;x\n02/03/2024;1\n04/05/2024;2\n")
    telling = write(tmp_path, "telling.csv", "day;x\n14/03/2024;1,5\n31/05/2024;2\n")
    for files in ([plain, telling], [telling, plain]):
        read = read_files(files, Dialect())
        assert SECOND_OF_MARCH in read.table.column("day").to_pylist()
        assert (read.dialect.decimal, read.dialect.day_first) == (",", True)


def test_guesses_about_a_file_are_said(tmp_path):
    path = write(tmp_path, "t.csv", "Liste\n\nx;name\n1;ä\n2;b\n".encode("cp1252"))
    encoding, header = read_files(path, Dialect()).notes
    assert encoding.endswith("t.csv is not UTF-8, and is read as cp1252: --encoding names another")
    assert header.endswith("t.csv: line 3 has the names of the columns")
    assert read_files(path, Dialect(encoding="latin-1", skip=2)).notes == []


rng = np.random.default_rng(0)
N = 80
ROWS = [
    (float(size), str(colour), dt.date(2020, 1, 1) + dt.timedelta(int(day)), float(cost))
    for size, colour, day, cost in zip(
        np.round(rng.standard_normal(N) * 5000, 2),
        rng.choice(["red", "blue"], N),
        rng.integers(13, 300, N),
        np.round(rng.standard_t(3, N) * 1000, 2),
        strict=True,
    )
]


def european(value, thousands="."):
    return f"{value:,.2f}".replace(",", "X").replace(".", ",").replace("X", thousands)


# From a size, a colour, a day and a cost to a line.
LINES = {
    "plain": (",", lambda s, c, d, y: f"{s},{c},{d:%Y-%m-%d},{y}"),
    "semicolons": (";", lambda s, c, d, y: f"{s};{c};{d:%Y-%m-%d};{y}"),
    "decimal commas": (";", lambda s, c, d, y: f"{s};{c};{d:%Y-%m-%d};{y}".replace(".", ",")),
    "thousands of Europe": (";", lambda s, c, d, y: f"{european(s)};{c};{d:%d.%m.%Y};{european(y)}"),
    "thousands of France": (
        ";",
        lambda s, c, d, y: f"{european(s, ' ')};{c};{d:%d/%m/%Y};{european(y, ' ')}",
    ),
    "thousands of America": (",", lambda s, c, d, y: f'"{s:,.2f}",{c},{d:%m/%d/%Y},"{y:,.2f}"'),
    "dollars": (",", lambda s, c, d, y: f'"{s:,.2f}",{c},"{d:%b} {d.day}, {d:%Y}","${y:,.2f}"'),
    "tabs": ("\t", lambda s, c, d, y: f"{s}\t{c}\t{d:%d %B %Y}\t{y} €"),
    "bars": ("|", lambda s, c, d, y: f"{s}|{c}|{d:%Y/%m/%d}|{y}"),
    "brackets": (",", lambda s, c, d, y: f"{s},{c},{d:%d-%m-%Y},{f'({-y})' if y < 0 else y}"),
}


@pytest.mark.filterwarnings("ignore:the candidates had not settled")
def test_the_same_rows_in_ten_dialects_make_the_same_model(tmp_path):
    coefficients = {}
    for name, (delimiter, line) in LINES.items():
        header = delimiter.join(["size", "colour", "day", "cost"])
        path = write(tmp_path, "t.csv", "\n".join([header, *(line(*row) for row in ROWS)]))
        rows = prepare(read_table(path), "cost")
        assert [column.kind for column in rows.encoding.columns] == ["number", "category", "date"], name
        model = fit_table(rows, "dc", {"random_state": 0, "k": 4})
        coefficients[name] = (*model.estimator.coef_, model.estimator.intercept_)
    assert len(coefficients) == 10
    assert len({*coefficients.values()}) == 1, coefficients


@pytest.mark.parametrize("last", ["Total,30", "2,Grand total", "SUMME,"])
def test_a_total_in_the_last_line_is_said(last, tmp_path):
    rows = "x,y\n1,10\n2,20\n"
    (note,) = read_files(write(tmp_path, "t.csv", rows + last + "\n"), Dialect()).notes
    assert "the last line says" in note
    assert note.endswith("remove it if it is a sum")
    assert read_files(write(tmp_path, "t.csv", rows), Dialect()).notes == []
