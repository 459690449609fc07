"""A text of a database that stands in the channel's headline pings nobody."""

from __future__ import annotations

import json

import pytest

from adapters.chat import Reply, ThreadRef
from adapters.discord.render import render_reply
from adapters.slack.render import render_message
from bot.jobs.layout import lay_out
from tests.unit.reports.test_layout import TITLE, call, found

THREAD = ThreadRef(platform="discord", workspace="1", channel="2", thread="3")


@pytest.mark.parametrize("around", ["", "`", "``", "| ", "\n"])
def test_a_statement_in_the_headline_mentions_nobody(around: str) -> None:
    sql = f'select 1 as {around}"<!channel> @everyone <@U123> @here"{around}'
    rows = [{"sql": sql, "duration": 2.0}]
    one = call("a1", "get_slow_queries", {"ok": True, "target": "shop", "rows": rows})
    report = lay_out(TITLE, "", [found("a1", one, offline=True)], chinese=False)
    assert "everyone" in report.headline
    for text in (report.headline, report.body):
        slack = render_message(text)
        assert not any(f"<{ping}" in slack.text for ping in ("!channel", "!everyone", "!here", "@U123"))
        shown = json.dumps(slack.blocks)  # text there is taken as it is; only elements of their own kinds ping
        assert not any(f'"type": "{kind}"' in shown for kind in ("broadcast", "user", "usergroup", "mrkdwn"))
        payload = render_reply(Reply(thread=THREAD, text=text, key="k"))
        assert not payload.mentions
