"""When two questions are one: stored pairs, and what must never be evened out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.llm.cache.gate import is_momentary, normalise, same_question
from tests.stopwatch import least_cpu_s
from tests.unit.engine.cache.cases import Pair, cosine, pairs

ADVERSARIAL = pairs("adversarial") + pairs("second adversarial")
LISTED = {"the", "an", "please", "are", "is", "does", "do", "i", "we"}


def test_there_are_sixty_adversarial_pairs_ten_of_a_kind_thirty_later_ones_and_sixty_restatements() -> None:
    kinds = [pair.kind for pair in pairs("adversarial")]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ("negation", "number", "host", "table", "environment", "time range"), 10
    )
    assert (len(pairs("second adversarial")), len(pairs("restatement"))) == (30, 60)


@pytest.mark.parametrize("pair", ADVERSARIAL, ids=lambda pair: f"{pair.kind}: {pair.a}")
def test_an_adversarial_pair_is_never_one_question(pair: Pair) -> None:
    assert not same_question(pair.a, pair.b)
    assert not same_question(pair.b, pair.a)
    assert normalise(pair.a) != normalise(pair.b)


@pytest.mark.parametrize("pair", pairs("restatement"), ids=lambda pair: pair.b)
def test_a_trivial_restatement_has_the_same_key(pair: Pair) -> None:
    assert normalise(pair.a) == normalise(pair.b)
    assert same_question(pair.a, pair.b)


def test_the_gate_is_needed_a_real_model_puts_most_adversarial_pairs_over_the_threshold() -> None:
    over = [pair for pair in ADVERSARIAL if cosine(pair) > 0.92]
    assert len(over) == 53  # of 90, all-MiniLM-L6-v2


def test_some_paraphrases_pass_the_gate() -> None:
    passed = [pair for pair in pairs("paraphrase") if same_question(pair.a, pair.b)]
    assert len(passed) >= 8  # of 20; it is strict on purpose


@given(st.sampled_from(pairs("restatement")), st.data())
def test_one_changed_dropped_or_moved_word_makes_another_question(pair: Pair, data: st.DataObject) -> None:
    words = pair.a.rstrip("?").split()
    at = data.draw(st.integers(0, len(words) - 1))
    new = data.draw(st.text("bcdfghjk", min_size=4, max_size=8))
    changed = " ".join([*words[:at], new, *words[at + 1 :]])
    added = " ".join([*words[:at], new, *words[at:]])
    assert not same_question(pair.a, changed)
    assert not same_question(pair.a, added)
    if words[at].casefold() not in LISTED and len(words) > 3 and 0 < at < len(words) - 1:
        assert not same_question(pair.a, " ".join([*words[:at], *words[at + 1 :]]))


@given(st.text(max_size=60))
def test_normalising_twice_is_normalising_once_and_a_text_equals_itself_or_has_no_words(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert same_question(text, once) == same_question(text, text)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("How big is `Users`?", "How big is `users`?"),
        ('What is in "Users"?', 'What is in "users"?'),
        ("What is in “Users”?", "What is in “users”?"),
        ("explain select * from Users", "explain select * from users"),
        ("drop table Users", "drop table users"),
        ("Is orderItems large?", "Is orderitems large?"),
        ("Is Order_Items large?", "Is order_items large?"),
        ("Who writes /var/log/App?", "Who writes /var/log/app?"),
        ("What does ls -A do?", "What does ls -a do?"),
        ("What is 10²?", "What is 102?"),
        ("What is $?", "What is $!"),
        ("What is a = b?", "What is a != b?"),
        ("What is 5 M rows?", "What is 5 m rows?"),
        ("find 'a  b'", "find 'a b'"),
        ("restart web, worker", "restart web worker"),
        ("no, stop", "no stop"),
    ],
)
def test_what_tells_two_things_apart_is_not_evened_out(a: str, b: str) -> None:
    assert normalise(a) != normalise(b)
    assert not same_question(a, b)


@pytest.mark.parametrize("greeting", ["", "please, thanks", "Hello, 谢谢", "谢谢", "   "])
def test_texts_without_words_are_never_one_question(greeting: str) -> None:
    assert not same_question(greeting, "")
    assert not same_question("", greeting)


@pytest.mark.parametrize(
    "text",
    [
        "What time is it?",
        "Who is on call NOW?",
        "What is the current lag?",
        "Show errors of the last 5 minutes",
        "What changed since the deploy?",
        "What's the date?",
        "Which is the latest release?",
        "Is the api still down?",
        "What failed two hours ago?",
        "What happened on Monday?",
        "What ran this morning?",
        "n\u200bow?",
        "What are my incidents?",
        "Do I have access to prod?",
        "现在几点?",
        "今天谁值班?",
        "最近有哪些慢查询?",
        "当前延迟是多少?",
        "5 分钟前发生了什么?",
        "上周的告警有哪些?",
        "我的权限有哪些?",
    ],
)
def test_a_question_about_the_moment_or_the_asker_is_momentary(text: str) -> None:
    assert is_momentary(text)


@pytest.mark.parametrize(
    "text",
    [
        "How do I rotate a password?",
        "What does last_value do?",
        "Where do I find the runbook?",
        "什么是死锁?",
        "前缀索引",
    ],
)
def test_other_questions_are_not(text: str) -> None:
    assert not is_momentary(text)


@pytest.mark.parametrize(
    "text", ["select " * 570, "`" * 3999, "'" * 3999, " " * 3999 + "x", "?! " * 1333, "drop table " * 363, "a," * 1999]
)
def test_hostile_text_of_the_longest_length_is_read_in_bounded_time(text: str) -> None:
    assert least_cpu_s(lambda: (same_question(text, text + "x"), is_momentary(text)), enough_s=1.0) <= 1.0
