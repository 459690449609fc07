"""A message as JSON: nobody is pinged who is not named."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import Attachment
from adapters.discord.body import MOST_MENTIONS, NONCE_MAX, build_body, build_edit, build_nonce
from adapters.discord.payload import Payload

PAYLOADS = st.builds(
    Payload,
    content=st.text(max_size=50),
    mentions=st.frozensets(st.one_of(st.integers(1, 2**63).map(str), st.text(max_size=5)), max_size=120),
    reply_to=st.sampled_from(["", "17"]),
    private=st.booleans(),
)


@given(PAYLOADS)
def test_every_message_says_whom_it_may_ping_and_shows_no_previews(payload: Payload) -> None:
    for body in (build_body(payload, nonce="n"), build_body(payload), build_edit(payload)):
        allowed = body["allowed_mentions"]
        assert isinstance(allowed, dict)
        assert allowed["parse"] == []
        assert allowed["roles"] == []
        assert allowed["replied_user"] is False
        users = allowed["users"]
        assert set(users) <= payload.mentions
        assert len(users) == len(set(users)) <= MOST_MENTIONS
        assert all(user.isdigit() for user in users)
        flags = body["flags"]
        assert isinstance(flags, int)
        assert flags & 4
        json.dumps(body)


@given(st.text(), st.text())
def test_a_nonce_fits_discord_and_is_as_good_as_its_key(one: str, other: str) -> None:
    assert build_nonce(one) == build_nonce(one)
    assert (build_nonce(one) == build_nonce(other)) == (one == other)
    assert 0 < len(build_nonce(one)) <= NONCE_MAX


def test_a_nonce_is_enforced_and_its_form_never_changes() -> None:
    """Another form would make a post that an older version left in doubt unfindable."""
    assert build_nonce("run-1/1") == "53926bf005c1d856a90258d01"
    body = build_body(Payload(content="x"), nonce="n")
    assert (body["nonce"], body["enforce_nonce"]) == ("n", True)
    assert "nonce" not in build_body(Payload(content="x"))
    assert "nonce" not in build_edit(Payload(content="x"))


def test_a_private_message_is_ephemeral_and_a_reply_survives_a_deleted_question() -> None:
    assert build_body(Payload(content="x", private=True))["flags"] == 4 | 64
    assert build_body(Payload(content="x", reply_to="7"))["message_reference"] == {
        "message_id": "7",
        "fail_if_not_exists": False,
    }


def test_an_edit_removes_buttons_that_are_not_named_and_keeps_files() -> None:
    body = build_edit(Payload(content="x"))
    assert body["components"] == []
    assert "attachments" not in body
    named = build_edit(Payload(content="x"), files=(Attachment(name="a", content="b", title="A" * 2_000),))
    assert named["attachments"] == [{"id": 0, "description": "A" * 1_024}]
