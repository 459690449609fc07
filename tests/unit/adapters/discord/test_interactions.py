"""Where a command can be answered travels with it as one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.discord.received import Responder, parse_responder

ids = st.integers(1, 2**64 - 1).map(str)
tokens = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=20, max_size=250)


@given(application=ids, token=tokens, interaction=ids, private=st.booleans())
def test_it_is_read_back_as_it_was_written(application: str, token: str, interaction: str, private: bool) -> None:
    responder = Responder(application=application, token=token, id=interaction, private=private)
    assert parse_responder(responder.write()) == responder


def test_without_an_id_its_age_is_not_known() -> None:
    assert parse_responder("1/token") == Responder(application="1", token="token")


@pytest.mark.parametrize("text", ["", "1", "1/", "x/token", "https://hooks.slack.com/commands/T1/1/x", "1/to ken"])
def test_anything_else_is_no_such_text(text: str) -> None:
    assert parse_responder(text) is None
