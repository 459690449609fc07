"""Tables on Discord: aligned by the width that is seen, or their head and a CSV file."""

from __future__ import annotations

import csv
import io

from rich.cells import cell_len

from adapters.discord.render import CONTENT_MAX, content_size, measure, render_markdown
from tests.unit.adapters.discord.reader import read


def table(rows: int, columns: int, cell: str = "x") -> str:
    head = "|" + "|".join(f" c{n} " for n in range(columns)) + "|"
    line = "|" + "|".join("---" for _ in range(columns)) + "|"
    body = ["|" + "|".join(f" {cell}{r}.{n} " for n in range(columns)) + "|" for r in range(rows)]
    return "\n".join([head, line, *body])


def test_a_table_is_drawn_in_columns_of_the_width_that_is_seen() -> None:
    rendered = render_markdown("| name | n |\n|:--|--:|\n| 数量 | 12 |\n| 😀😀 ok | 3 |\n| `abc` | **4** |")
    ((language, drawn),) = read(rendered.content).blocks
    assert language == ""
    assert rendered.files == ()
    assert {cell_len(line) for line in drawn.split("\n")} == {cell_len("😀😀 ok | 12")}
    assert drawn.split("\n")[2] == "数量    | 12"


def test_a_table_that_is_too_wide_becomes_its_head_and_a_file_with_all_of_it() -> None:
    rendered = render_markdown("Before.\n\n" + table(12, 9, "a long cell with words ") + "\n\nAfter.")
    (file,) = rendered.files
    rows = list(csv.reader(io.StringIO(file.content)))
    assert file.name == "table-1.csv"
    assert len(rows) == 13
    assert {len(row) for row in rows} == {9}
    assert rows[12][8] == "a long cell with words 11.8"
    ((_, drawn),) = read(rendered.content).blocks
    assert max(cell_len(line) for line in drawn.split("\n")) <= 5 * 24 + 4 * 3
    assert "a long cell with words…" in drawn or "a long cell with word…" in drawn
    assert "12 rows × 9 columns" in rendered.content
    assert "all are in the file table-1.csv" in rendered.content
    assert rendered.content.startswith("Before.")
    assert rendered.content.endswith("After.")


def test_a_table_that_is_too_long_becomes_its_head_and_a_file_with_all_of_it() -> None:
    rendered = render_markdown(table(500, 2))
    (file,) = rendered.files
    assert len(list(csv.reader(io.StringIO(file.content)))) == 501
    ((_, drawn),) = read(rendered.content).blocks
    assert len(drawn.split("\n")) == 10
    assert content_size(rendered.content) < CONTENT_MAX // 2


def test_several_large_tables_are_several_files() -> None:
    rendered = render_markdown("\n\n".join([table(50, 2)] * 3))
    assert [file.name for file in rendered.files] == ["table-1.csv", "table-2.csv", "table-3.csv"]
    assert len({line for line in rendered.content.split("\n") if "all are in" in line}) == 3


def test_more_files_than_a_message_takes_do_not_fit_it() -> None:
    many = "\n\n".join([table(50, 1)] * 9)
    assert measure(many) > CONTENT_MAX
    assert content_size(render_markdown(many).content) < CONTENT_MAX


def test_where_a_link_of_a_table_leads_is_not_lost() -> None:
    rendered = render_markdown("| a |\n|---|\n| [docs](https://ex.test/x) **[y](https://y.test)** |")
    assert "docs (https://ex.test/x) y (https://y.test)" in rendered.content


def test_a_table_in_a_quote_and_in_a_list_is_drawn_too() -> None:
    small = "| a | b |\n|---|---|\n| 1 | 2 |"
    quoted = "\n".join(f"> {line}" for line in small.split("\n"))
    listed = "- x\n\n" + "\n".join(f"  {line}" for line in small.split("\n"))
    assert "> a | b\n> --+--\n> 1 | 2" in render_markdown(quoted).content
    assert read(render_markdown(listed).content).blocks == [("", "a | b\n--+--\n1 | 2")]


def test_what_a_cell_says_ends_no_code_and_mentions_nobody() -> None:
    rendered = render_markdown("| a |\n|---|\n| ``` ``` ``` @everyone <@1> |", {"1"})
    seen = read(rendered.content)
    assert len(seen.blocks) == 1
    assert seen.live == []
    assert rendered.mentions == frozenset()
