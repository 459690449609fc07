from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.signature import SignatureVerifier

from adapters.slack.http import is_signed, parse_request

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STAMP = str(int(NOW.timestamp()))


def sign(secret: str, body: bytes, stamp: str = STAMP) -> str:
    signed = b"v0:" + stamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def test_it_agrees_with_slacks_own_client() -> None:
    body = '{"text": "ä 🙂"}'
    theirs = SignatureVerifier("s3cret").generate_signature(timestamp=STAMP, body=body)
    assert theirs is not None
    assert is_signed("s3cret", body.encode(), STAMP, theirs, NOW)


@pytest.mark.parametrize(("age_s", "taken"), [(0, True), (300, True), (301, False), (-300, True), (-301, False)])
def test_a_request_is_taken_for_five_minutes(age_s: int, taken: bool) -> None:
    assert is_signed("s", b"x", STAMP, sign("s", b"x"), NOW + timedelta(seconds=age_s)) is taken


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_no_other_body_has_the_same_signature(one: bytes, two: bytes) -> None:
    assert is_signed("s", two, STAMP, sign("s", one), NOW) is (one == two)


@given(st.text(max_size=24), st.text(max_size=80))
def test_no_header_breaks_it_or_gets_through(timestamp: str, signature: str) -> None:
    assert not is_signed("s", b"x", timestamp, signature, NOW)


@pytest.mark.parametrize("stamp", ["", "-1", "1e9", "１７７２３６６４００", f" {STAMP}", "9" * 400, f"{STAMP}.0"])
def test_a_time_is_ten_digits_or_so(stamp: str) -> None:
    assert not is_signed("s", b"x", stamp, sign("s", b"x", stamp), NOW)


def test_without_a_secret_nothing_is_signed() -> None:
    assert not is_signed("", b"x", STAMP, sign("", b"x"), NOW)


@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/x-www-form-urlencoded", ""]))
def test_no_body_breaks_the_reading(body: bytes, content_type: str) -> None:
    read = parse_request(body, content_type)
    assert read is None or isinstance(read, dict)


def test_a_command_is_a_form_and_an_interaction_is_json_in_one() -> None:
    form = "application/x-www-form-urlencoded"
    assert parse_request(b"command=%2Fhermod&text=a+%26+b&empty=", form) == {
        "command": "/hermod",
        "text": "a & b",
        "empty": "",
    }
    assert parse_request(b"payload=%7B%22type%22%3A%22block_actions%22%7D", form) == {"type": "block_actions"}
