"""Names and kinds of files that nobody vouches for."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.tools.python_sandbox.files import (
    NAME_BYTES,
    NAME_CHARS,
    MadeFile,
    build_posted_name,
    clean_file_name,
    count_rows,
    format_size,
    read_kind,
    split_suffix,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
SAFE = set(" ._-+(),=")


@pytest.mark.parametrize(
    ("given_name", "clean"),
    [
        ("sales.csv", "sales.csv"),
        ("My data (1).csv", "My data (1).csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\eve\\x.txt", "x.txt"),
        ("/", "file"),
        ("", "file"),
        ("..", "file"),
        (".bashrc", "bashrc"),
        ("-rf.txt", "rf.txt"),
        ("--help", "help"),
        ("~root", "root"),
        ("a\x00b\nc\x1b[31m.csv", "a b c _31m.csv"),
        ("photo\u202egpj.exe", "photogpj.exe"),
        ("zero\u200bwidth.txt", "zerowidth.txt"),
        ("CON", "file-CON"),
        ("nul.txt", "file-nul.txt"),
        ("LPT1.csv", "file-LPT1.csv"),
        ("<@U123> @everyone `x` [y](z).csv", "U123_ _everyone _x_ _y_(z).csv"),
        ("销售 2024.csv", "销售 2024.csv"),
        ("данные.csv", "данные.csv"),
        ("half\ud800pair.txt", "half_pair.txt"),
        ("name. . .", "name"),
    ],
)
def test_names_lose_what_could_harm_and_keep_what_people_recognise(given_name: str, clean: str) -> None:
    assert clean_file_name(given_name) == clean


@given(st.text(max_size=400), st.lists(st.text(max_size=20), max_size=3))
@example("a" * 300 + ".csv", [])
@example("漢" * 300 + ".csv", [])
@example("x." + "y" * 300, [])
@example("\u0345.csv", ["\u0399.CSV"])
def test_every_name_becomes_one_plain_component(name: str, others: list[str]) -> None:
    clean = clean_file_name(name, taken=others)
    assert 1 <= len(clean) <= NAME_CHARS
    assert len(clean.encode()) <= NAME_BYTES
    assert clean[0] not in " .-~"
    assert clean[-1] not in " ."
    assert all(c in SAFE or unicodedata.category(c)[0] in "LNM" for c in clean)
    assert clean_file_name(clean) == clean


@given(st.lists(st.text(alphabet="aAbB./\u00e9e\u0301 ", max_size=6), max_size=12))
def test_names_of_one_folder_differ_also_without_their_case(names: list[str]) -> None:
    taken: list[str] = []
    for name in names:
        taken.append(clean_file_name(name, taken=taken))
    assert len({name.casefold() for name in taken}) == len(names)


def test_a_taken_name_gets_a_number_before_its_suffix() -> None:
    assert clean_file_name("Report.CSV", taken=["report.csv"]) == "Report-2.CSV"
    assert clean_file_name("report.csv", taken=["report.csv", "report-2.csv"]) == "report-3.csv"
    long = "n" * 200 + ".csv"
    first = clean_file_name(long)
    second = clean_file_name(long, taken=[first])
    assert second.endswith("-2.csv")
    assert len(second) <= NAME_CHARS


@pytest.mark.parametrize(
    ("name", "content", "kind", "posted"),
    [
        ("plot.png", PNG, "png", "plot.png"),
        ("plot", PNG, "png", "plot.png"),
        ("data.csv", PNG, "png", "data.png"),
        ("photo.jpg", b"\xff\xd8\xff\xe0rest", "jpeg", "photo.jpg"),
        ("a.csv", b"x,y\n1,2\n", "csv", "a.csv"),
        ("a.tsv", b"x\ty\n", "csv", "a.tsv"),
        ("a.json", b'{"a": 1}', "json", "a.json"),
        ("notes.md", "# Überschrift".encode(), "md", "notes.md"),
        ("run.log", b"line\n", "txt", "run.log"),
        ("README", b"hello", "txt", "README.txt"),
        ("bom.csv", b"\xef\xbb\xbfa,b\n", "csv", "bom.csv"),
        ("script.py", b"print(1)", "other", "script.py"),
        ("book.xlsx", b"PK\x03\x04zip", "other", "book.xlsx"),
        ("chart.svg", b"<svg onload='alert(1)'/>", "other", "chart.svg.bin"),
        ("page.html", b"<!doctype html><script>alert(1)</script>", "other", "page.html.bin"),
        ("page.HTM", b"plain words", "other", "page.HTM.bin"),
        ("hidden.txt", b" \n<HTML><script>", "other", "hidden.txt.bin"),
        ("hidden.csv", b"<svg xmlns='x'>", "other", "hidden.csv.bin"),
        ("not.png", b"MZ\x90\x00", "other", "not.png.bin"),
        ("run.exe", b"MZ", "other", "run.exe.bin"),
        ("loop.gif", b"GIF89a", "other", "loop.gif.bin"),
        ("latin.txt", b"caf\xe9", "other", "latin.txt.bin"),
        ("nul.csv", b"a\x00b", "other", "nul.csv.bin"),
        ("empty.csv", b"", "other", "empty.csv.bin"),
    ],
)
def test_a_kind_is_told_by_content_and_no_suffix_promises_more(
    name: str, content: bytes, kind: str, posted: str
) -> None:
    file = MadeFile(name=name, content=content, kind=read_kind(name, content))
    assert (file.kind, file.posted_name) == (kind, posted)


@given(st.text(max_size=100), st.binary(max_size=60))
def test_only_what_is_a_picture_or_text_is_posted_under_a_name_that_is_drawn(name: str, content: bytes) -> None:
    clean = clean_file_name(name)
    kind = read_kind(clean, content)
    posted = build_posted_name(clean, kind)
    assert len(posted) <= NAME_CHARS
    suffix = split_suffix(posted)[1].lower()
    if suffix in (".png", ".jpg", ".jpeg"):
        assert content.startswith((b"\x89PNG", b"\xff\xd8\xff"))
    assert suffix not in (".svg", ".html", ".htm", ".xml", ".js", ".exe", ".gif")


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"", 0),
        (b"a,b\n", 0),
        (b"a,b\n1,2\n3,4\n", 2),
        (b"a,b\n1,2\n3,4", 2),
        (b'a,b\n1,"two\nlines"\n\n3,4\n', 2),
        (b'a\n"say ""hi""\nthere"\n', 1),
        (b"a\r\n1\r\n", 1),
    ],
)
def test_rows_are_counted_below_the_header_and_through_quotes(content: bytes, rows: int) -> None:
    assert count_rows("csv", content) == rows
    assert count_rows("txt", content) is None


def test_sizes_read_like_a_file_browser() -> None:
    assert [format_size(n) for n in (0, 999, 1000, 12_345, 999_949, 999_950, 4_000_000)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "12.3 kB",
        "999.9 kB",
        "1.0 MB",
        "4.0 MB",
    ]
