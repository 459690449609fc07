"""A whole message: what it shows, whom it pings, and that Slack takes it."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.markdown import parse_markdown
from adapters.slack.blocks import shown_text
from adapters.slack.render import TEXT_CUT, MessageLimits, Rendered, TableLimits, render_message
from tests.servers.slack.blocks import check_blocks
from tests.servers.slack.pings import find_pings
from tests.unit.adapters.markdown_texts import CONSTRUCTS, MARKUP, NASTY, PINGS


def pinged(rendered: Rendered) -> set[str]:
    """Whom Slack would notify, bare words included."""
    return find_pings({"text": rendered.text, "blocks": list(rendered.blocks)})


def spans(rendered: Rendered, kind: str) -> list[dict[str, Any]]:
    """All spans of one kind in the message."""

    def walk(part: Any) -> list[dict[str, Any]]:
        if isinstance(part, list):
            return [found for inner in part for found in walk(inner)]
        if not isinstance(part, dict):
            return []
        own = [part] if part.get("type") == kind else []
        return own + walk(part.get("elements", [])) + walk(part.get("rows", []))

    return walk(list(rendered.blocks))


def elements(rendered: Rendered) -> list[dict[str, Any]]:
    return [e for block in rendered.blocks if block["type"] == "rich_text" for e in block["elements"]]


def plain(part: dict[str, Any]) -> str:
    return shown_text([part])


# -- what is shown -----------------------------------------------------------------------------------


def test_a_plain_sentence_needs_no_blocks() -> None:
    assert render_message("Nothing is slow at the moment.") == Rendered(text="Nothing is slow at the moment.")


def test_a_plain_sentence_beside_buttons_is_shown_in_a_block() -> None:
    rendered = render_message("May I restart it?", reserve_blocks=2)
    assert shown_text(rendered.blocks) == "May I restart it?"


@pytest.mark.parametrize("text", ["it was *not* so \\*really\\*", "`x`", "12:30:45", "> no", "see ex.test", "a_b_ _c_"])
def test_what_slack_would_take_for_a_mark_is_shown_in_blocks(text: str) -> None:
    assert render_message(text).blocks


def test_a_blank_text_is_a_blank_message() -> None:
    assert render_message(" \n\n") == Rendered(text="")


def test_headings_are_headers_and_the_rest_is_rich_text() -> None:
    rendered = render_message("# Slow queries\n\nTwo *of* them.\n\n### Detail\n\nx\n\n---\n\ny")
    assert [b["type"] for b in rendered.blocks] == ["header", "rich_text", "divider", "rich_text"]
    assert plain(rendered.blocks[1]) == "Two of them.\n\nDetail\n\nx"
    assert rendered.text == "*Slow queries*\n\nTwo _of_ them.\n\n*Detail*\n\nx\n\n────────────────\n\ny"


@pytest.mark.parametrize(
    "title", ["x" * 151, "a & b", "`code` of it", ":smile: here", "see <@U1>", "[l](https://e.test)"]
)
def test_a_heading_that_a_header_would_change_is_bold_text(title: str) -> None:
    rendered = render_message(f"# {title}\n\ntext")
    assert [b["type"] for b in rendered.blocks] == ["rich_text"]


def test_more_headings_than_blocks_become_bold_text() -> None:
    rendered = render_message("".join(f"## H{n}\n\ntext {n}\n\n---\n\n" for n in range(40)), reserve_blocks=3)
    assert len(rendered.blocks) <= 47
    assert rendered.files == ()
    assert "#" not in shown_text(rendered.blocks)
    assert all(f"H{n}\n" in shown_text(rendered.blocks) for n in range(40))


def test_nested_lists_keep_their_depth_numbers_and_code() -> None:
    text = "3. a\n   - b\n     ```py\n     x\n     ```\n   - c\n4. d\n\n   more"
    shapes = [
        (e["type"], e.get("style"), e.get("indent"), e.get("offset"), plain(e)) for e in elements(render_message(text))
    ]
    assert shapes == [
        ("rich_text_list", "ordered", 0, 2, "a"),
        ("rich_text_list", "bullet", 1, None, "b"),
        ("rich_text_preformatted", None, None, None, "x"),
        ("rich_text_list", "bullet", 1, None, "c"),
        ("rich_text_list", "ordered", 0, 3, "d\nmore"),
    ]


def test_a_list_that_begins_with_zero_shows_its_own_numbers() -> None:
    (lines,) = elements(render_message("0. a\n1. b"))
    assert [plain(item) for item in lines["elements"]] == ["0. a", "1. b"]


def test_a_code_block_keeps_its_language() -> None:
    code = {"type": "text", "text": "select 1 <2"}
    assert elements(render_message("```sql\nselect 1 <2\n```")) == [
        {"type": "rich_text_preformatted", "elements": [code], "language": "sql"}
    ]
    assert elements(render_message("```py\nx\n```"))[0]["language"] == "python"
    assert "language" not in elements(render_message("```<b>\nx\n```"))[0]


def test_a_quote_holds_its_paragraphs_and_marks_its_lists() -> None:
    found = elements(render_message("> one\n>\n> **two**\n>\n> - x\n>\n> three"))
    assert [(e["type"], e.get("border"), plain(e)) for e in found] == [
        ("rich_text_quote", None, "one\n\ntwo"),
        ("rich_text_list", 1, "x"),
        ("rich_text_quote", None, "three"),
    ]


def test_b044_bold_text_beside_letters_is_bold_and_shows_no_asterisks() -> None:
    for text, bold in (("**Status:**OK", "Status:"), ("です**強調**です", "強調"), ("**注意：**不要", "注意：")):
        rendered = render_message(text)
        assert [s["text"] for s in spans(rendered, "text") if s.get("style") == {"bold": True}] == [bold]
        assert "*" not in shown_text(rendered.blocks)


def test_b045_backticks_from_a_tool_reach_slack_as_they_are() -> None:
    rendered = render_message("```` ```{'a': 1}``` ````")
    assert spans(rendered, "text") == [{"type": "text", "text": "```{'a': 1}```", "style": {"code": True}}]
    assert elements(render_message("````\n```{'a': 1}```\n````"))[0]["elements"][0]["text"] == "```{'a': 1}```"


def test_b046_an_address_is_a_link_without_a_second_copy_of_itself() -> None:
    url = "https://ex.com/a_b?x=1&y=2"
    for text in (url, f"<{url}>", f"[{url}]({url})", f"See {url}."):
        assert spans(render_message(text), "link") == [{"type": "link", "url": url}]


def test_b053_an_address_is_escaped_once_per_surface() -> None:
    rendered = render_message("[q](https://ex.com/?a=1&b=2) and \\&lt;!here\\&gt; and &lt;!here&gt;")
    assert spans(rendered, "link") == [{"type": "link", "url": "https://ex.com/?a=1&b=2", "text": "q"}]
    assert shown_text(rendered.blocks) == "q and &lt;!here&gt; and <!here>"
    assert rendered.text == "<https://ex.com/?a=1&amp;b=2|q> and &amp;lt;!here&amp;gt; and &lt;!here&gt;"
    assert pinged(rendered) == set()


# -- tables ------------------------------------------------------------------------------------------


def table_of(rendered: Rendered) -> dict[str, Any]:
    (found,) = [b for b in rendered.blocks if b["type"] == "table"]
    return found


def test_b048_styles_and_links_are_kept_in_the_cells_of_a_table() -> None:
    table = table_of(render_message("| q | n |\n|:-:|--:|\n| **x** and `y` | [l](https://ex.test) |"))
    assert table["column_settings"] == [
        {"align": "center", "is_wrapped": False},
        {"align": "right", "is_wrapped": False},
    ]
    styled, link = [cell["elements"][0]["elements"] for cell in table["rows"][1]]
    assert styled == [
        {"type": "text", "text": "x", "style": {"bold": True}},
        {"type": "text", "text": " and "},
        {"type": "text", "text": "y", "style": {"code": True}},
    ]
    assert link == [{"type": "link", "url": "https://ex.test", "text": "l"}]


def test_b043_a_real_query_result_does_not_break_the_table() -> None:
    rows = "".join(f"| {n} | NULL | |\n" for n in range(150))
    for body in (f"| 1 | {'x' * 4000} | |\n", rows, rows + f"| 1 | {'x' * 4000} | |\n", f"| 1 | {'y' * 11_000} | |\n"):
        rendered = render_message("| id | note | empty |\n|---|---|---|\n" + body)
        check_blocks(list(rendered.blocks))
        assert table_of(rendered)["rows"][1][2] == {"type": "raw_text", "text": " "}


def test_a_large_table_is_a_preview_and_a_file_with_all_of_it() -> None:
    rows = "".join(f"| q{n} | {n} | =cmd() | -{n} |\n" for n in range(150))
    rendered = render_message("Before.\n\n| query | n | note | d |\n|---|--:|---|---|\n" + rows + "\nAfter.")
    (file,) = rendered.files
    assert file.name == "table-1.csv"
    lines = list(csv.reader(io.StringIO(file.content)))
    assert lines[0] == ["query", "n", "note", "d"]
    assert lines[150] == ["q149", "149", "'=cmd()", "-149"]
    assert len(table_of(rendered)["rows"]) == 11
    assert "150 rows × 4 columns" in rendered.text
    assert "table-1.csv" in shown_text(rendered.blocks)
    assert shown_text(rendered.blocks).endswith("After.")


def test_a_table_with_many_columns_is_a_file_too() -> None:
    row = "|" + "|".join(f" c{n} " for n in range(25)) + "|"
    rendered = render_message(f"{row}\n|{'---|' * 25}\n{row}")
    assert len(table_of(rendered)["rows"][0]) <= 20
    assert rendered.files[0].content.splitlines()[1].endswith("c24")


def test_a_table_that_finds_no_room_beside_another_is_drawn_in_monospace() -> None:
    table = "| name | 数量 |\n|---|---:|\n" + "".join(f"| {'x' * 60} | {n} |\n" for n in range(60))
    rendered = render_message(f"{table}\n\n{table}", limits=MessageLimits(tables=TableLimits(chars=5_000)))
    check_blocks(list(rendered.blocks))
    assert [b["type"] for b in rendered.blocks] == ["table", "rich_text"]
    assert elements(rendered)[0]["elements"][0]["text"].startswith("name ")


def test_b043_a_table_is_drawn_in_monospace_after_slack_refused_it() -> None:
    rendered = render_message("| a | 数量 |\n|---|--:|\n| 中文😀 | 22 |", native_tables=False)
    assert elements(rendered)[0]["elements"][0]["text"] == "a      | 数量\n-------+-----\n中文😀 |   22"


def test_a_wide_table_without_table_blocks_is_one_paragraph_a_row() -> None:
    text = f"| query | calls |\n|---|---|\n| select {'x' * 150} | **3** |"
    assert plain(elements(render_message(text, native_tables=False))[0]) == f"select {'x' * 150}\n    calls: 3"


# -- links -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "<https://evil.example|Deploy succeeded>",
        "[https://good.test](https://evil.example)",
        "[good.test/login](https://evil.example)",
        "[Sign in at good.test now](https://evil.example)",
        "[www.good.test](https://good.test@evil.example/)",
        "[me@good.test](mailto:me@evil.example)",
    ],
)
def test_b052_a_label_does_not_hide_another_host(text: str) -> None:
    rendered = render_message(text)
    assert all(link.get("text", "") in ("", link["url"].removeprefix("mailto:")) for link in spans(rendered, "link"))
    assert "evil.example" in shown_text(rendered.blocks)
    assert not re.search(r"<[^<>|]*\|[^<>]*good", rendered.text)


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "ftp://ex.test", "!here"]
)
def test_only_web_and_mail_addresses_are_links(url: str) -> None:
    rendered = render_message(f"[x]({url}) <{url}>", reserve_blocks=1)
    assert spans(rendered, "link") == []
    assert url in shown_text(rendered.blocks)


def test_b097_an_address_of_an_unknown_host_is_text_where_hosts_are_named() -> None:
    text = "render [error](https://evil.example/?q=secret) ![x](https://evil.example/p.png) https://evil.example/s"
    rendered = render_message(text + " [ok](https://docs.ex.test/a)", trusted={"ex.test"})
    assert [link["url"] for link in spans(rendered, "link")] == ["https://docs.ex.test/a"]
    assert "error (https://evil.example/?q=secret)" in shown_text(rendered.blocks)
    assert "<https://evil" not in rendered.text
    assert not re.search(r"(?<!\()https://evil", rendered.text.replace("\u200b", "¦"))


def test_b097_nothing_makes_slack_fetch_an_address() -> None:
    rendered = render_message("![chart](https://evil.example/?q=secret) and <https://ex.test>")
    assert {b["type"] for b in rendered.blocks} == {"rich_text"}
    assert spans(rendered, "image") == []


# -- direction ---------------------------------------------------------------------------------------


def test_b078_a_name_that_runs_from_right_to_left_does_not_move_what_follows() -> None:
    rendered = render_message("- שלום כהן — 3 errors (12:00)\n- `שלום` ok")
    assert "\u2068שלום כהן\u2069 — 3 errors (12:00)" in shown_text(rendered.blocks)
    assert "\u2068שלום כהן\u2069" in rendered.text
    assert {"type": "text", "text": "שלום", "style": {"code": True}} in spans(rendered, "text")


def test_b078_a_line_in_hebrew_keeps_its_own_direction() -> None:
    assert render_message("שלוש שאילתות VACUUM איטיות נמצאו").text == "שלוש שאילתות VACUUM איטיות נמצאו"


def test_b079_what_overrides_the_direction_is_taken_out() -> None:
    for text in (
        "a \u202egnp.exe b",
        "a &#x202E;b",
        "`\u202ex`",
        "```\n\u2067x\n```",
        "| \u202ea |\n|---|\n| \u2066b |",
    ):
        rendered = render_message(text)
        assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067") & set(rendered.text + shown_text(rendered.blocks))


# -- who is pinged -----------------------------------------------------------------------------------


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_b051_no_construct_lets_a_ping_through(construct: str) -> None:
    for inside in (PINGS, "<!channel>", "<@U2>", "<!subteam^S1>"):
        text = construct.replace("{}", inside)
        for rendered in (render_message(text), render_message(text, native_tables=False), render_message(text, {"U1"})):
            assert pinged(rendered) == set()
            check_blocks(list(rendered.blocks))


def test_b051_a_table_cell_and_its_file_ping_nobody() -> None:
    row = "| <!channel> <@U2> | [<!here>](https://ex.test) |\n"
    rendered = render_message("| <!here> | b |\n|---|---|\n" + row * 120)
    assert pinged(rendered) == set()
    assert all("<" not in file.name + file.title for file in rendered.files)


def test_b054_only_the_listed_people_are_mentioned() -> None:
    rendered = render_message("<@U1> **<@U1>** asks <@U2>, `<@U1>`\n\n- <@W3>\n\n> <@U1>", {"U1"})
    assert [span["user_id"] for span in spans(rendered, "user")] == ["U1", "U1", "U1"]
    assert pinged(rendered) == {"U1"}
    assert "<@U2>" in shown_text(rendered.blocks)


# -- whatever is said --------------------------------------------------------------------------------


def check_message(text: str, **options: Any) -> Rendered:
    rendered = render_message(text, {"U1"}, **options)
    blocks = list(rendered.blocks)
    check_blocks(blocks, most=50 - options.get("reserve_blocks", 0))
    assert pinged(rendered) <= {"U1"}
    assert len(rendered.text) < TEXT_CUT
    rendered.text.encode()
    assert bool(rendered.text.strip()) or (not blocks and not rendered.files)
    assert sum(len(str(b)) for b in blocks) < 400_000
    assert all(span.get("text") != "" for span in spans(rendered, "text"))
    assert len(re.findall(r"```", rendered.text)) % 2 == 0
    return rendered


@pytest.mark.parametrize("text", NASTY)
def test_texts_that_went_wrong_elsewhere_are_taken(text: str) -> None:
    check_message(text)
    check_message(text, native_tables=False, reserve_blocks=3)
    check_message(f"> {text}")
    check_message(f"- {text}", trusted=())


@settings(max_examples=300, deadline=None)
@given(MARKUP, st.booleans(), st.sampled_from([0, 3]))
def test_whatever_is_said_slack_takes_it_and_only_listed_people_are_pinged(text: str, native: bool, few: int) -> None:
    check_message(text, native_tables=native, reserve_blocks=few)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=400))
@example("a" * 200 + "\u0301" * 200)
def test_any_unicode_is_taken(text: str) -> None:
    check_message(text)


def letters(text: str) -> str:
    return re.sub(r"[^a-z\u4e2d]", "", text)


@settings(max_examples=300, deadline=None)
@given(MARKUP)
def test_every_letter_of_the_tree_is_shown(text: str) -> None:
    from adapters.markdown.cut import visible_text

    rendered = render_message(text, reserve_blocks=1)
    seen = letters(shown_text(rendered.blocks))
    want = letters(visible_text(text))
    assert set(want) == set(seen)
    if "](" not in text and "://" not in text and "]:" not in text and "<" not in text and "|" not in text:
        assert seen == want


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab<>&;@!|#lgtamp \n", max_size=80))
def test_what_slack_reads_back_is_rendered_the_same(text: str) -> None:
    """Escaping happens once: the shown characters, taken as text again, are shown as the same characters."""
    shown = shown_text(render_message("`" + text.replace("\n", " ") + "x`", reserve_blocks=1).blocks)
    assert shown_text(render_message(f"``{shown}``", reserve_blocks=1).blocks).strip() == shown.strip()
    assert parse_markdown(text) == parse_markdown(text)


@pytest.mark.parametrize("text", ["x " * 30_000, "```sql\n" + "select 1;\n" * 5000 + "```", "- item\n" * 9000])
def test_a_text_over_the_ceiling_goes_on_in_a_file_and_says_so(text: str) -> None:
    rendered = check_message(text, reserve_blocks=2)
    assert rendered.files[-1].name == "answer.md"
    assert "answer.md" in rendered.text
    assert "answer.md" in shown_text(rendered.blocks)
    words = re.findall(r"x|select|item", shown_text(rendered.blocks) + rendered.files[-1].content)
    assert len(words) == len(re.findall(r"x|select|item", text))


def test_one_definition_used_a_thousand_times_is_still_one_message() -> None:
    rendered = check_message("[r] " * 500 + "\n\n[r]: https://ex.test/" + "a" * 900)
    assert rendered.blocks
    assert "answer.md" in shown_text(rendered.blocks)


def test_a_fallback_text_that_is_too_long_is_cut_between_characters() -> None:
    rendered = render_message("&" * 11_900)
    assert shown_text(rendered.blocks) == "&" * 11_900
    assert re.fullmatch(r"(?:&amp;){7000,}…", rendered.text)
