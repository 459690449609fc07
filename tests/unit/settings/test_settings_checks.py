"""What single keys cannot show: addresses, prices, and what belongs together."""

from __future__ import annotations

import pytest

from bot.settings import SettingsError, load_settings


def test_a_target_on_a_unix_socket_is_accepted() -> None:
    url = "postgresql://hermod:secret-word@/shop?host=/run/postgresql&port=5432"
    settings = load_settings(None, {"HERMOD_TARGETS__SHOP__URL": url})
    assert settings.targets["shop"].build_url() == url
    assert "secret-word" in settings.secrets()


def test_a_target_without_any_host_is_refused() -> None:
    with pytest.raises(SettingsError, match="must be postgresql://user@host"):
        load_settings(None, {"HERMOD_TARGETS__SHOP__URL": "postgresql://hermod@/shop"})


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_the_rows_may_be_kept_in_postgres_and_its_password_is_a_secret(scheme: str) -> None:
    settings = load_settings(None, {"HERMOD_STORAGE__URL": f"{scheme}://hermod:secret-word@db/hermod"})
    assert "secret-word" in settings.secrets()
    assert "secret-word" not in repr(settings)


@pytest.mark.parametrize("url", ["postgresql:hermod", "mysql://hermod@db/hermod", "sqlite:///", "hermod.db"])
def test_another_address_of_the_rows_is_refused_with_both_forms(url: str) -> None:
    with pytest.raises(SettingsError, match=r"sqlite:///hermod\.db, or a database, postgresql://USER"):
        load_settings(None, {"HERMOD_STORAGE__URL": url})


def test_a_price_needs_both_of_its_numbers() -> None:
    variables = {
        "HERMOD_MODELS__0__MODEL": "m",
        "HERMOD_MODELS__0__API_KEY": "sk-some-key-123",
        "HERMOD_MODELS__0__INPUT_USD_PER_MTOK": "1.5",
    }
    with pytest.raises(SettingsError, match="a price needs both"):
        load_settings(None, variables)


def test_one_same_action_would_end_every_run() -> None:
    with pytest.raises(SettingsError, match="at least 2"):
        load_settings(None, {"HERMOD_LIMITS__MAX_SAME_ACTION": "1"})


# -- Slack: over HTTP, and in many workspaces ------------------------------------------------------

KEY = "0123456789abcdef0123456789abcdef"
MANY = {
    "HERMOD_SLACK__APP_TOKEN": "xapp-1-app",
    "HERMOD_SLACK__CLIENT_ID": "111.222",
    "HERMOD_SLACK__CLIENT_SECRET": "a-client-secret",
    "HERMOD_SLACK__PUBLIC_URL": "https://hermod.example.com",
    "HERMOD_SECURITY__KEY": KEY,
}


def problems(variables: dict[str, str], missing: tuple[str, ...] = ()) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, variables, installed=lambda module: module not in missing)
    return "\n".join(caught.value.problems)


def test_many_workspaces_need_no_bot_token_and_nothing_is_marked_as_unused() -> None:
    settings = load_settings(None, MANY)
    assert settings.slack is not None
    assert settings.slack.bot_token is None
    assert settings.notices == ()
    with_one = load_settings(None, {**MANY, "HERMOD_SLACK__BOT_TOKEN": "xoxb-1-bot"})
    assert with_one.slack is not None
    assert with_one.slack.bot_token is not None


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ("HERMOD_SLACK__CLIENT_SECRET", "HERMOD_SLACK__CLIENT_SECRET: missing; client_id needs it"),
        ("HERMOD_SLACK__PUBLIC_URL", "HERMOD_SLACK__PUBLIC_URL: missing; client_id needs it"),
        ("HERMOD_SECURITY__KEY", "HERMOD_SECURITY__KEY: missing; tokens of workspaces are kept encrypted"),
        ("HERMOD_SLACK__CLIENT_ID", "HERMOD_SLACK__CLIENT_ID: missing; client_secret has no effect without it"),
        ("HERMOD_SLACK__APP_TOKEN", "HERMOD_SLACK__APP_TOKEN: missing; set app_token"),
    ],
)
def test_what_many_workspaces_need_is_named_when_it_is_missing(left_out: str, expected: str) -> None:
    assert expected in problems({name: value for name, value in MANY.items() if name != left_out})


def test_many_workspaces_need_the_library_that_encrypts() -> None:
    assert "missing extra slack" in problems(MANY, missing=("cryptography",))


@pytest.mark.parametrize(
    "url",
    [
        "http://hermod.example.com",
        "hermod.example.com",
        "https://",
        "https://user@hermod.example.com",
        "https://hermod.example.com/?a=1",
        "https://hermod.example.com/#x",
        "ftp://127.0.0.1",
        "https://a b.example.com",
        "https://[",
    ],
)
def test_a_public_address_is_one_that_a_browser_may_trust_with_a_code(url: str) -> None:
    text = problems({**MANY, "HERMOD_SLACK__PUBLIC_URL": url})
    assert "HERMOD_SLACK__PUBLIC_URL: must " in text
    assert url not in text.replace("https://hermod.example.com", "")


@pytest.mark.parametrize("url", ["https://ops.example.com/hermod/", "http://127.0.0.1:8484", "http://localhost:1"])
def test_a_public_address_may_have_a_path_and_may_be_this_machine(url: str) -> None:
    settings = load_settings(None, {**MANY, "HERMOD_SLACK__PUBLIC_URL": url})
    assert settings.slack is not None
    assert settings.slack.public_url == url


def test_keys_are_read_newest_first_and_each_is_a_secret() -> None:
    other = KEY[::-1]
    settings = load_settings(None, {**MANY, "HERMOD_SECURITY__KEY": f" {KEY} , {other},"})
    assert settings.security.keys == (KEY, other)
    assert {KEY, other} <= set(settings.secrets())
    assert load_settings(None, {}).security.keys == ()


@pytest.mark.parametrize(
    ("key", "expected"),
    [("short", "at least 16 random characters"), (f"{KEY},short", "at least 16"), (f"{KEY},{KEY}", "same key twice")],
)
def test_a_weak_key_is_refused(key: str, expected: str) -> None:
    text = problems({**MANY, "HERMOD_SECURITY__KEY": key})
    assert expected in text
    assert key not in text


def test_over_http_the_signing_secret_is_needed_and_the_app_token_is_not() -> None:
    http = {"HERMOD_SLACK__BOT_TOKEN": "xoxb-1-bot", "HERMOD_SLACK__MODE": "http"}
    assert "HERMOD_SLACK__SIGNING_SECRET: missing" in problems(http)
    settings = load_settings(None, {**http, "HERMOD_SLACK__SIGNING_SECRET": "a-signing-secret"})
    assert settings.slack is not None
    assert settings.notices == ()


# -- Discord ---------------------------------------------------------------------------------------

DISCORD = {"HERMOD_DISCORD__TOKEN": "a-bot-token"}


def test_a_token_is_all_that_discord_needs_and_no_key_is_unused() -> None:
    settings = load_settings(None, {**DISCORD, "HERMOD_DISCORD__SHARD_COUNT": "2", "HERMOD_DISCORD__SHARD_IDS": "1"})
    assert settings.discord is not None
    assert settings.discord.shard_ids == (1,)
    assert settings.notices == ()
    assert "a-bot-token" in settings.secrets()


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"TOKEN": "Bot a-bot-token"}, 'token: must be the token alone, without "Bot" and without spaces'),
        ({"API_URL": "discord.com/api"}, "api_url: must be a URL that starts with http:// or https://"),
        ({"GATEWAY_URL": "https://gateway"}, "gateway_url: must be a URL that starts with ws:// or wss://"),
        ({"GUILD_IDS": "my guild"}, "guild_ids[0]: must be a guild's id, a number"),
        ({"SHARD_IDS": "0"}, "shard_count: missing; shard_ids are out of so many"),
        ({"SHARD_COUNT": "2", "SHARD_IDS": "2"}, "shard_ids[0]: must be at least 0 and below shard_count"),
        ({"SHARD_COUNT": "2", "SHARD_IDS": "1,1"}, "shard_ids[1]: named twice; remove one"),
    ],
)
def test_what_discord_cannot_work_with_is_told_with_its_remedy(variables: dict[str, str], line: str) -> None:
    found = problems({**DISCORD, **{f"HERMOD_DISCORD__{name}": value for name, value in variables.items()}})
    key, _, said = line.partition(": ")
    assert key.upper().replace("[0]", "").replace("[1]", "") in found.upper()
    assert said in found


def test_discord_needs_its_extra() -> None:
    assert "pip install 'hermod-bot[discord]'" in problems(DISCORD, missing=("discord",))


# -- the sandbox -----------------------------------------------------------------------------------


def test_the_backend_of_a_runner_needs_its_address_and_token() -> None:
    found = problems({"HERMOD_SANDBOX__BACKEND": "runner"})
    assert "missing; the backend" in found
    assert "RUNNER_TOKEN" in found.upper()
    assert "must be a URL" in problems({"HERMOD_SANDBOX__RUNNER_URL": "runner:8485"})
