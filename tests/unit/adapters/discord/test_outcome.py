"""What a failed call means for a post."""

from __future__ import annotations

import aiohttp
import pytest

from adapters.chat import InDoubt, Rejected, RetryLater
from adapters.discord.http import Answer
from adapters.discord.outcome import BUSY_S, build_broken, build_failed
from adapters.discord.refusals import FORBIDDEN_S, GONE_S, Refusals


def answer(status: int, code: int = 0, **data: object) -> Answer:
    return Answer(status=status, data={"code": code, "message": "words", **data}, headers={})


@pytest.mark.parametrize("code", [10003, 10004])
def test_a_place_that_does_not_exist_any_more_is_gone(code: int) -> None:
    outcome = build_failed(answer(404, code)).outcome
    assert isinstance(outcome, Rejected)
    assert outcome.gone


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (401, 0, "copy it again"),
        (403, 50001, "View Channel"),
        (403, 50013, "hermod doctor"),
        (403, 50007, "no direct messages"),
        (404, 10008, "deleted"),
        (403, 160005, "locked"),
        (400, 160006, "archive some"),
        (403, 160002, "Read Message History"),
        (413, 40005, "larger"),
        (413, 0, "too large"),
    ],
)
def test_a_refusal_says_what_to_do(status: int, code: int, remedy: str) -> None:
    outcome = build_failed(answer(status, code)).outcome
    assert isinstance(outcome, Rejected)
    assert remedy in outcome.reason
    assert not outcome.gone


def test_a_form_error_names_the_field_and_why() -> None:
    errors = {"content": {"_errors": [{"code": "BASE_TYPE_MAX_LENGTH", "message": "Must be 2000 or fewer in length."}]}}
    failed = build_failed(answer(400, 50035, errors=errors))
    assert "content: Must be 2000 or fewer in length." in failed.said


@pytest.mark.parametrize("errors", [None, [], {"_errors": 3}, {"a": {"_errors": [None, "x"]}}, "x"])
def test_a_form_error_of_another_shape_is_told_all_the_same(errors: object) -> None:
    assert "50035" in build_failed(answer(400, 50035, errors=errors)).said


def test_a_429_says_when_to_come_back() -> None:
    assert build_failed(answer(429, retry_after=1.25)).later_s == 1.25
    limited = Answer(status=429, data=None, headers={"retry-after": "7"})
    assert build_failed(limited).later_s == 7.0
    assert build_failed(Answer(status=429, data=None, headers={})).later_s == BUSY_S
    assert build_failed(answer(429, retry_after="soon")).later_s == BUSY_S


@pytest.mark.parametrize("status", [500, 502, 503, 520, 200])
def test_what_may_have_been_done_is_in_doubt(status: int) -> None:
    assert isinstance(build_failed(Answer(status=status, data=None, headers={})).outcome, InDoubt)


def test_a_connection_that_broke_is_in_doubt_and_one_that_was_never_made_is_not() -> None:
    assert isinstance(build_broken(aiohttp.ServerDisconnectedError()).outcome, InDoubt)
    assert isinstance(build_broken(TimeoutError()).outcome, InDoubt)
    assert isinstance(build_broken(aiohttp.ConnectionTimeoutError()).outcome, RetryLater)


def test_a_failure_tells_no_address_and_no_token() -> None:
    broken = build_broken(aiohttp.InvalidURL("https://discord.com/api/webhooks/1/secret"))
    assert "secret" not in broken.said
    assert "secret" not in str(broken.outcome)


def test_refusals_are_remembered_as_long_as_they_hold() -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    gone, forbidden = build_failed(answer(404, 10003)), build_failed(answer(403, 50013))
    refusals.note("message", "c1", gone)
    refusals.note("message", "c2", forbidden)
    refusals.note("message", "c3", build_failed(answer(400, 50006)))
    assert refusals.find("typing", "c1") is gone
    assert refusals.is_gone("c1")
    assert refusals.find("message", "c2") is forbidden
    assert refusals.find("typing", "c2") is None
    assert refusals.find("message", "c3") is None
    now = FORBIDDEN_S + 1
    assert refusals.find("message", "c2") is None
    assert refusals.is_gone("c1")
    now = GONE_S + 1
    assert not refusals.is_gone("c1")


def test_a_refused_token_stops_every_call_for_a_while() -> None:
    now = 0.0
    refusals = Refusals(lambda: now)
    refusals.note("message", "c1", build_failed(answer(401)))
    assert refusals.find("typing", "c2") is not None
    now = FORBIDDEN_S + 1
    assert refusals.find("typing", "c2") is None


def test_the_memory_of_refusals_is_bounded() -> None:
    refusals = Refusals(lambda: 0.0)
    for n in range(5_000):
        refusals.note("message", str(n), build_failed(answer(404, 10003)))
    assert refusals.is_gone("4999")
    assert not refusals.is_gone("0")
