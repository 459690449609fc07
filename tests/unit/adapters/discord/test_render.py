"""Whole messages: they fit, say all, ping nobody who is not meant, and are never empty."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adapters.chat import Attachment, Button, Limits, Reply, ThreadRef
from adapters.discord.payload import Payload
from adapters.discord.render import CONTENT_MAX, LIMITS, content_size, fits, measure, render_markdown, render_reply
from adapters.markdown import fit_markdown
from adapters.markdown.grapheme import is_boundary
from bot.presenter import build_reply_rows, load_reply
from tests.stopwatch import least_cpu_s
from tests.unit.adapters.discord.reader import LIVE, Seen, read
from tests.unit.adapters.markdown_texts import CONSTRUCTS, MARKUP, NASTY, capitals, documents

THREAD = ThreadRef(platform="discord", workspace="1", channel="2", thread="3")
PINGS = "@everyone @here <@2> <@!2> <@&9> <#5> <:x:1> <a:x:1> </ask:1> <t:1:R> <id:customize>"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def render(text: str, *mentions: str, files: tuple[Attachment, ...] = ()) -> Payload:
    return render_reply(Reply(thread=THREAD, text=text, key="r/1", mentions=frozenset(mentions), files=files))


def post(text: str) -> list[Payload]:
    """What is posted of an answer, part by part."""
    rows = build_reply_rows(THREAD, text, run_id="r", limits=LIMITS, now=NOW)
    return [render_reply(load_reply(row.body)) for row in rows]


def check(payload: Payload) -> Seen:
    """Say what is seen of a message that Discord takes."""
    assert content_size(payload.content) <= CONTENT_MAX
    assert len(payload.content) <= CONTENT_MAX
    assert payload.content.strip() or payload.files
    assert payload.content.count("```") % 2 == 0
    seen = read(payload.content)
    allowed = {f"<@{user}>" for user in payload.mentions}
    assert set(seen.live) <= allowed
    assert set(LIVE.findall(_without_code(payload.content))) <= allowed  # for a reader that knows no escapes
    return seen


def _without_code(content: str) -> str:
    return re.sub(r"```[\s\S]*?```|(?<![\\`])(`+)[\s\S]*?[^`]\1(?!`)", "", content)


def said(payloads: list[Payload], between: str = "") -> str:
    """All characters that arrive, in messages and in files."""
    return between.join(check(p).text + "".join(file.content for file in p.files) for p in payloads)


# -- what one message is -----------------------------------------------------------------------------


def test_a_reply_becomes_text_buttons_files_and_the_people_it_mentions() -> None:
    file = Attachment(name="plan.txt", content="x")
    payload = render_reply(
        Reply(
            thread=THREAD,
            text="**Hi** <@7>, <@8>",
            key="r/1",
            mentions=frozenset({"7", "9"}),
            files=(file,),
            buttons=(Button(name="approve", label="Yes", value="a1"),),
            feedback="run",
            private_to="7",
        )
    )
    assert payload.content == "**Hi** <@7>, \\<\u200b@8>"
    assert payload.mentions == {"7"}
    assert payload.files == (file,)
    assert [len(row["components"]) for row in payload.components] == [1, 2]  # type: ignore[arg-type]
    assert payload.private


@pytest.mark.parametrize("text", ["", " \n", "\u200b\u2060", "```\n\n```", "<!-- -->"[:0]])
def test_a_message_is_never_empty(text: str) -> None:
    assert render(text).content == "*(nothing to show)*"
    assert render(text, files=(Attachment(name="a", content="b"),)).content == ""


def test_b049_no_text_of_a_model_pings_anybody() -> None:
    payload = render("@everyone @here <@&9> <@1> [x](@everyone) [@here](https://ex.test)")
    assert payload.mentions == frozenset()
    assert read(payload.content).live == []


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_no_construct_brings_a_mention_through(construct: str) -> None:
    check(render(construct.replace("{}", PINGS)))
    check(render(construct.replace("{}", PINGS), "2"))


# -- fitting -----------------------------------------------------------------------------------------


def test_b038_two_thousand_and_one_characters_are_two_messages() -> None:
    payloads = post("z" * 2001)
    assert len(payloads) == 2
    assert said(payloads) == "z" * 2001


def test_b040_escaping_happens_before_measuring_and_no_part_is_blank() -> None:
    payloads = post("@everyone " * 400)
    assert len(payloads) == 3
    assert said(payloads, " ").replace("\u200b", "").split() == ["@everyone"] * 400
    assert [p.content for p in post("\n" * 2000 + "x")] == ["x"]
    assert all(p.content.strip() for p in post("* " * 3000))


def test_b037_each_part_of_a_code_block_is_a_block_of_the_same_language() -> None:
    code = "\n".join(f"print({n})  # line" for n in range(300))
    payloads = post(f"Look:\n\n```py\n{code}\n```\n\nThat was it.")
    blocks = [block for p in payloads for block in check(p).blocks]
    assert len(blocks) == 3
    assert {language for language, _ in blocks} == {"py"}
    assert "\n".join(text for _, text in blocks) == code


def test_no_grapheme_is_torn() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for cluster in (family, "\U0001f1e9\U0001f1ea", "e\u0301", "\U0001f600"):
        payloads = post(cluster * 1100)
        assert len(payloads) > 1
        for payload in payloads:
            assert len(payload.content) % len(cluster) == 0
            assert is_boundary(payload.content + "x", len(payload.content))


def test_what_does_not_fit_one_message_is_in_a_file_that_the_message_names() -> None:
    words = [f"w{n}" for n in range(3000)]
    payload = render(" ".join(words))
    seen = check(payload)
    (file,) = payload.files
    assert file.name == "answer.md"
    assert "answer.md" in payload.content
    assert re.findall(r"\bw\d+", seen.text + " " + file.content) == words


def test_fits_says_what_fits() -> None:
    assert fits("x" * 1990)
    assert not fits("x" * 2001)
    assert not fits("[x " * 640)
    assert not fits("x" * 100_000)


def build_long_answer(size: int) -> str:
    """An answer with a bit of everything, every word of which is known."""
    parts: list[str] = []
    n = 0
    while sum(map(len, parts)) < size:
        n += 1
        words = " ".join(f"w{n}x{m}" for m in range(60))
        parts.append(
            f"## Part {n}\n\n@everyone <@1> <@&2> <#3> <:x:4> 😀 {words} [link](https://ex.test/{n}) `c{n}`\n\n"
            f"- one{n} @here\n  - two{n} 👨‍👩‍👧\n\n```sql\nselect {n} from t -- @everyone <@5>\n```\n\n"
            f"| query | 数量 |\n|---|--:|\n| q{n} <@6> | {n} |\n\n> quoted{n} ||x|| **@here**"
        )
        if n % 20 == 0:
            parts.append("| a | b |\n|---|---|\n" + "\n".join(f"| r{n}y{m} | @everyone |" for m in range(60)))
    return "\n\n".join(parts)


def test_an_answer_of_60_kb_arrives_whole_and_pings_nobody() -> None:
    text = build_long_answer(60_000)
    payloads = post(text)
    arrived = said(payloads, " ")
    known = r"\b(?:w\d+x\d+|one\d+|two\d+|quoted\d+|c\d+|q\d+|r\d+y\d+)\b"
    assert set(re.findall(known, text)) == set(re.findall(known, arrived))
    assert len(payloads) == 12
    assert [file.name for p in payloads for file in p.files][-1] == "answer.md"
    assert not any(p.mentions for p in payloads)


@pytest.mark.parametrize(
    "text",
    [
        build_long_answer(60_000),
        "word " * 12_000,
        "```\n" + "select 1;\n" * 6_000 + "```",
        "- item of a list\n" * 3_500,
        "a*b_c " * 10_000,
        "| a | b |\n|---|---|\n" + "| x | y |\n" * 5_000,
        "[r] " * 3_000 + "\n\n[r]: https://ex.test/" + "a" * 400,
    ],
)
def test_a_very_long_answer_is_rendered_in_bounded_time(text: str) -> None:
    assert least_cpu_s(lambda: said(post(text)), enough_s=15.0) <= 15.0  # at most 2.5 s where it was measured


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("`a`**`*`**", "`a`\u200b`*`"),  # the backticks of two codes would be read as one mark
        ("``````**```a" * 4, "``**`0`0`a``0``a`0`0`0`0`0`**``a".replace("0", "\u200b") + 9 * "\\`" + "a"),
        (":smi**le: `*`**", "\\:smile: `*`"),  # an emoji
        ("*a **b `*` c***", "a b `*` c"),
    ],
)
def test_marks_that_are_left_out_let_nothing_else_become_a_mark(text: str, content: str) -> None:
    assert render(text).content == content


# -- properties --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(documents())
def test_no_word_is_lost_or_doubled_and_every_message_is_taken(text: str) -> None:
    assume(capitals(text))  # of a text without anything to see the answer says just that
    assert capitals(said(post(text))) == capitals(text)


@settings(max_examples=60, deadline=None)
@given(documents(), st.integers(120, 600))
def test_every_part_fits_however_small_the_room_is(text: str, most: int) -> None:
    limits = Limits(text_max=most, unit="utf16", measure=measure)
    parts = fit_markdown(text, limits, measure=measure)
    sizes = [content_size(render_markdown(part).content) for part in parts]
    assert max(sizes) <= most
    assert capitals("".join(read(render_markdown(part).content).text for part in parts)) == capitals(text)


@settings(max_examples=150, deadline=None)
@given(st.one_of(MARKUP, st.sampled_from(NASTY)), st.integers(1, 60))
def test_anything_becomes_messages_that_ping_nobody(text: str, times: int) -> None:
    for payload in post(text * times):
        check(payload)
    check(render(text * times, "2"))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_any_characters_become_a_message(text: str) -> None:
    check(render(text))
    assert measure(text) >= content_size(render_markdown(text).content)
