from __future__ import annotations

import pytest

from tests.servers.slack.rates import POST_BURST, Ledger


def ledger_of(method: str, times: list[float], channel: str = "C1") -> Ledger:
    ledger = Ledger()
    for at in times:
        ledger.record(method, team="T1", channel=channel, at=at)
    return ledger


@pytest.mark.parametrize(("method", "allowed"), [("chat.startStream", 20), ("chat.update", 50), ("users.info", 100)])
def test_calls_above_the_published_rate_are_found_in_any_minute(method: str, allowed: int) -> None:
    at_rate = [100 + 60 * n / allowed for n in range(3 * allowed)]
    assert ledger_of(method, at_rate).violations() == []
    burst = [159.0 + n / 1000 for n in range(allowed)]
    assert ledger_of(method, burst).violations() == []
    (found,) = ledger_of(method, [100.5, *burst]).violations()
    assert f"{allowed + 1} calls within 60 s" in found


def test_workspaces_are_counted_apart() -> None:
    ledger = ledger_of("chat.startStream", [100.0] * 20)
    for _ in range(20):
        ledger.record("chat.startStream", team="T2", channel="C9", at=100.0)
    assert ledger.violations() == []
    assert ledger.busiest("chat.startStream") == 20


def test_a_channel_takes_a_post_a_second_and_a_short_burst() -> None:
    burst = [100.0] * (POST_BURST + 1)
    assert ledger_of("chat.postMessage", [*burst, *(101.0 + n for n in range(60))]).violations() == []
    assert len(ledger_of("chat.postMessage", [*burst, 100.5]).violations()) == 1
    assert len(ledger_of("chat.postMessage", [100 + n / 2 for n in range(20)]).violations()) == 1


def test_a_method_without_a_published_figure_is_not_counted() -> None:
    assert ledger_of("assistant.threads.setStatus", [100.0] * 1000).violations() == []


def test_as_many_connections_as_an_app_may_hold_can_be_opened_at_once() -> None:
    assert ledger_of("apps.connections.open", [100.0] * 10).violations() == []
    assert len(ledger_of("apps.connections.open", [100.0] * 11).violations()) == 1
