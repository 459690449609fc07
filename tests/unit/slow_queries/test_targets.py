"""Targets: URLs taken apart, names resolved, passwords kept to themselves."""

from __future__ import annotations

import pytest

from agent_core.errors import ConfigError, ToolFailed
from bot.tools.targets import Target, Targets


def parts(url: str) -> tuple[str, str, str, str, str]:
    target = Target.from_url("x", url)
    secret = "" if target.password is None else target.password.get_secret_value()
    return target.host, target.port, target.user, target.database, secret


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://bot:pw@db.example:5433/shop", ("db.example", "5433", "bot", "shop", "pw")),
        ("postgres://bot@db/shop", ("db", "", "bot", "shop", "")),
        ("postgresql://b%40t:p%3A%2Fw%40@db/my%20shop", ("db", "", "b@t", "my shop", "p:/w@")),
        ("postgresql://bot:p@w@db/shop", ("db", "", "bot", "shop", "p@w")),
        ("postgresql:///shop?host=/run/pg&port=5555&user=bot&password=pw", ("/run/pg", "5555", "bot", "shop", "pw")),
        ("postgresql://bot@a:1,b:2/shop", ("a,b", "1,2", "bot", "shop", "")),
        ("postgresql://bot@[::1]:5432/shop", ("::1", "5432", "bot", "shop", "")),
        ("postgresql://bot@[::1]/shop", ("::1", "", "bot", "shop", "")),
        ("postgresql://%2Frun%2Fpg/shop", ("/run/pg", "", "", "shop", "")),
        ("postgresql://", ("", "", "", "", "")),
        ("sqlite:////var/lib/x.db", ("", "", "", "//var/lib/x.db", "")),
    ],
)
def test_a_url_is_taken_apart_as_libpq_would(url: str, expected: tuple[str, str, str, str, str]) -> None:
    assert parts(url) == expected


def test_what_is_beside_the_url_wins_and_other_options_are_kept() -> None:
    target = Target.from_url(
        "x", "postgresql://bot:old@db/shop?sslmode=disable&sslrootcert=/ca.pem", password="new", sslmode="require"
    )
    assert target.password is not None
    assert target.password.get_secret_value() == "new"
    assert target.sslmode == "require"
    assert target.options == {"sslrootcert": "/ca.pem"}


def test_nothing_secret_shows_in_a_target() -> None:
    target = Target.from_url("shop", "postgresql://bot:s3cret@db.internal:5433/shop?sslpassword=s3cret")
    for said in (repr(target), str(target), target.describe()):
        assert "s3cret" not in said
        assert "db.internal" not in said


@pytest.mark.parametrize("url", ["oracle://x:s3cret@y/z", "s3cret", "", "postgresql://bot:s3cret@[::1/shop"])
def test_a_url_that_cannot_be_read_is_a_mistake_of_the_operator_and_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Target.from_url("shop", url)
    assert "'shop'" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_names_resolve_and_the_only_one_needs_no_name() -> None:
    shop, logs = Target.from_url("shop", "postgresql://a/b"), Target.from_url("logs", "slowlog:///var/log/slow.log")
    assert Targets([shop]).resolve(None) is shop
    both = Targets([shop, logs])
    assert both.resolve(" logs ") is logs
    assert dict(both) == {"shop": shop, "logs": logs}
    for name in (None, "SHOP", "x" * 500):
        with pytest.raises(ToolFailed) as caught:
            both.resolve(name)
        assert caught.value.code == "unknown_target"
        assert "logs, shop" in caught.value.message
        assert len(caught.value.message) < 200


def test_a_tool_that_does_not_serve_an_engine_names_what_it_serves() -> None:
    for url, word in (("mysql://a/b", "MySQL"), ("sqlite:///b", "SQLite"), ("slowlog:///b", "slow-query log")):
        with pytest.raises(ToolFailed, match=word) as caught:
            Target.from_url("x", url).require("postgresql", tool="explain_query")
        assert caught.value.code == "unsupported"
        assert "explain_query" in caught.value.message
