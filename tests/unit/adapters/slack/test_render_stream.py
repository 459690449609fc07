"""Text for Slack's native stream: what is written never changes, nothing is lost, nobody is pinged."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.markdown import Link, parse_markdown, plain_text
from adapters.markdown.cut import visible_text
from adapters.slack.links import show_link
from adapters.slack.streamed import StreamText, render_stream
from tests.servers.slack.pings import find_pings
from tests.unit.adapters.markdown_texts import CONSTRUCTS, MARKUP, NASTY, PINGS, balanced, capitals, documents

BREAK = "\u200b"


def seen(text: str) -> str:
    return re.sub(r"[^a-z\u4e2d]", "", text)


@pytest.mark.parametrize(
    ("markdown", "streamed"),
    [
        ("# Title\n\nSome *text*, ~~not~~ `code`.", "# Title\n\nSome *text*, ~~not~~ `code`."),
        ("a < b && c > d", "a &lt; b && c > d"),
        ("`a <b` `<!here>`", f"`a <b` `<{BREAK}!here>`"),
        ("```sql\nselect 1 <2\n```", "```sql\nselect 1 <2\n```"),
        ("```\nnever closed", "```\nnever closed\n```"),
        ("> ```\n> a", "> ```\n> a\n> ```"),
        ("**Status:**OK", "**Status**:OK"),
        ("**注意：**不要", "**注意**：不要"),
        ("字**「注」**字", "字「**注**」字"),
        ("です**強調**です", f"です{BREAK}**強調**{BREAK}です"),
        ("2 * 3 ** 4", "2 * 3 ** 4"),
        ("[q](https://ex.com/?a=1&b=2)", "[q](https://ex.com/?a=1&b=2)"),
        ("[`q`](https://ex.com/a_(b))", "[`q`](https://ex.com/a_%28b%29)"),
        ("![i](https://ex.test/i.png)", "[i](https://ex.test/i.png)"),
        ("<https://ex.test/a>", "https://ex.test/a"),
        ("[x](javascript:alert)", "x (javascript:alert)"),
        ("[good.test](https://evil.test)", "good.test (https://evil.test)"),
        ("<https://evil.test|Deploy>", "https://evil.test|Deploy"),
        ("@here [@here](https://ex.test) `@here`", f"@{BREAK}here [@{BREAK}here](https://ex.test) `@here`"),
        ("[r]: !here\n[x][r]", f"[r]{BREAK}: !here\n[x][r]"),
        ("a `b\nc` d", "a \\`b\nc\\` d"),
        ("• שלום — 3 errors", "• \u2068שלום\u2069 — 3 errors"),
        ("a \u202eb", "a b"),
    ],
)
def test_markdown_for_a_stream(markdown: str, streamed: str) -> None:
    assert render_stream(markdown, final=True) == streamed


def test_only_listed_people_are_mentioned() -> None:
    assert render_stream("<@U1> <@U2>", {"U1"}, final=True) == "<@U1> &lt;@U2>"


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("see [the doc", "see "),
        ("see [the doc](https://ex", "see "),
        ("see [x] th", "see [x] th"),
        ("it is **very", "it is "),
        ("a <", "a "),
        ("a < b", "a &lt; b"),
        ("```", ""),
        ("```py", ""),
        ("```" + "a" * 500, ""),
        ("wait!", "wait"),
        ("**" + "\u4e2d" * 3, ""),
        ("| a | b |\n|--", ""),
        ("| a | b |\n|---|---|\n| 1 | 2", "| a | b |\n|---|---|\n"),
        ("mail @her", "mail "),
        ("\U0001f468\u200d\U0001f469", ""),
        ("end\r", "end"),
    ],
)
def test_what_could_still_become_something_else_is_held_back(markdown: str, shown: str) -> None:
    assert render_stream(markdown) == shown


@pytest.mark.parametrize(
    "text", ["[" + "a" * 1100, "**" + "a" * 400, "`" + "a" * 500, "[x](" + "a" * 2600, "<" + "a" * 2100]
)
def test_nothing_is_held_back_for_ever(text: str) -> None:
    assert len(render_stream(text)) >= len(text) - 1


def test_a_table_over_what_slack_draws_goes_on_as_code() -> None:
    text = "| a | b |\n|---|---|\n" + "| 1 | <!here> |\n" * 150 + "\nafter"
    streamed = render_stream(text, final=True)
    assert balanced(streamed)
    assert streamed.endswith("```\n\nafter")
    assert streamed.count("| 1 |") == 150
    wide = render_stream("|" + "a|" * 30 + "\n|" + "-|" * 30 + "\n", final=True)
    assert not any(type(b).__name__ == "Table" for b in parse_markdown(wide).blocks)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_b051_no_construct_of_a_stream_lets_a_ping_through(construct: str) -> None:
    for inside in (PINGS, "<!channel>", "<@U2>"):
        text = construct.replace("{}", inside)
        for streamed in (render_stream(text, {"U1"}, final=True), render_stream(text + "\n\nmore", {"U1"})):
            assert find_pings({"text": streamed}) == set()
            assert "](!" not in streamed


def test_b097_a_stream_links_to_trusted_hosts_only() -> None:
    text = "[e](https://evil.example/?q=1) https://evil.example/s <https://evil.example> ok https://docs.ex.test/a"
    streamed = render_stream(text, final=True, trusted={"ex.test"})
    assert "://evil" not in streamed
    assert streamed.endswith("https://docs.ex.test/a")


def check_growth(text: str, steps: list[int]) -> None:
    """Whatever is shown of a beginning is the beginning of what is shown of more."""
    whole = render_stream(text, {"U1"}, final=True)
    written, stream = "", StreamText({"U1"})
    for step in steps:
        now = render_stream(text[:step], {"U1"})
        assert stream.show(text[:step]) == now
        assert now.startswith(written)
        written = now
    assert whole.startswith(written)
    assert stream.show(text, final=True) == whole
    assert find_pings({"text": whole}) <= {"U1"}


@settings(max_examples=400, deadline=None)
@given(MARKUP, st.data())
def test_what_is_written_never_changes(text: str, data: st.DataObject) -> None:
    check_growth(text, sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12))))


@settings(max_examples=60, deadline=None)
@given(documents(), st.integers(1, 60))
def test_no_word_is_lost_and_fences_are_closed(text: str, step: int) -> None:
    check_growth(text, list(range(0, len(text), step)))
    whole = render_stream(text, final=True)
    assert capitals(whole) == capitals(text)
    assert balanced(whole)


@pytest.mark.parametrize("text", NASTY)
def test_texts_that_went_wrong_elsewhere_grow_character_by_character(text: str) -> None:
    check_growth(text[:300], list(range(len(text[:300]) + 1)))


@settings(max_examples=300, deadline=None)
@given(MARKUP)
@example("**a:**b[c](https://ex.test/d)`e`")
def test_every_letter_is_still_there(text: str) -> None:
    streamed = render_stream(text, final=True)
    assert set(seen(visible_text(text))) <= set(seen(streamed)) | set("lthttpsex")


def links(node: object) -> list[Link]:
    """All links of a tree."""
    if isinstance(node, tuple):
        return [link for inner in node for link in links(inner)]
    own = [node] if isinstance(node, Link) else []
    return own + [link for name in getattr(node, "__slots__", ()) for link in links(getattr(node, name))]


@settings(max_examples=300, deadline=None)
@given(MARKUP)
@example("[a `b](https://ex.test) `[good.test](https://evil.test)`")
@example("[r]: !here\n\n[r] [x][r]")
def test_no_link_hides_where_it_leads(text: str) -> None:
    for link in links(parse_markdown(render_stream(text, final=True))):
        shown = show_link(link.url, plain_text(link.children))
        assert shown.url
        assert not shown.before
