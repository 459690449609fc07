from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.settings import Settings, SettingsError, describe_settings, load_settings

SLACK = '[slack]\nbot_token = "xoxb-1"\napp_token = "xapp-1"\n'


def load(
    path: Path, text: str = "", environ: Mapping[str, str] | None = None, missing: tuple[str, ...] = ()
) -> Settings:
    config = path / "hermod.toml"
    config.write_text(text, encoding="utf-8")
    return load_settings(config, environ or {}, installed=lambda module: module not in missing)


def problems(
    path: Path, text: str = "", environ: Mapping[str, str] | None = None, missing: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Each line without the folder of the file."""
    with pytest.raises(SettingsError) as caught:
        load(path, text, environ, missing)
    return tuple(line.replace(f"{path}/", "") for line in caught.value.problems)


# -- where values come from ------------------------------------------------------------------------


def test_without_file_and_environment_the_defaults_of_the_contract_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(None, {})
    assert settings.storage.url == "sqlite:///hermod.db"
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 8484)
    limits = settings.limits
    assert (limits.max_steps, limits.run_deadline_s, limits.max_same_action, limits.tool_timeout_s) == (10, 120, 3, 30)
    assert (limits.memory_tokens, limits.queue_per_thread) == (8000, 50)
    assert (limits.requests, limits.tool_calls, limits.tokens, limits.cost_usd) == (None, None, None, None)
    router = settings.router
    assert (router.max_attempts, router.backoff_base_s, router.backoff_cap_s) == (3, 2, 30)
    assert (router.failure_threshold, router.recovery_timeout_s) == (3, 60)
    assert settings.slack is None
    assert settings.targets == {}


def test_the_file_of_the_working_folder_is_read_when_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hermod.toml").write_text("[limits]\nmax_steps = 4\n")
    monkeypatch.chdir(tmp_path)
    assert load_settings(None, {}).limits.max_steps == 4


def test_a_named_file_wins_over_the_variable_that_names_one(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[limits]\nmax_steps = 4\n")
    (tmp_path / "b.toml").write_text("[limits]\nmax_steps = 5\n")
    environ = {"HERMOD_CONFIG": str(tmp_path / "b.toml")}
    assert load_settings(None, environ).limits.max_steps == 5
    assert load_settings(tmp_path / "a.toml", environ).limits.max_steps == 4


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    settings = load(tmp_path, "[limits]\nmax_steps = 4\ntokens = 9\n", {"HERMOD_LIMITS__MAX_STEPS": "6"})
    assert (settings.limits.max_steps, settings.limits.tokens) == (6, 9)


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    settings = load(tmp_path, "[limits]\nmax_steps = 4\n", {"HERMOD_LIMITS__MAX_STEPS": "", "HERMOD_SLACK__MODE": ""})
    assert settings.limits.max_steps == 4
    assert settings.slack is None


def test_arrays_are_addressed_by_index_and_the_next_index_appends(tmp_path: Path) -> None:
    text = '[[models]]\nname = "a"\nmodel = "m"\nbase_url = "http://localhost:1"\n'
    environ = {
        "HERMOD_MODELS__0__MODEL": "n",
        "HERMOD_MODELS__1__KIND": "offline",
        "HERMOD_MODELS__1__NAME": "last",
    }
    models = load(tmp_path, text, environ).models
    assert [(m.name, m.model, m.kind) for m in models] == [("a", "n", "openai"), ("last", "", "offline")]


def test_twelve_array_entries_keep_their_numeric_order(tmp_path: Path) -> None:
    environ = {f"HERMOD_MODELS__{n}__KIND": "offline" for n in range(12)}
    environ |= {f"HERMOD_MODELS__{n}__NAME": f"m{n}" for n in range(12)}
    assert [m.name for m in load(tmp_path, "", environ).models] == [f"m{n}" for n in range(12)]


def test_tables_are_addressed_by_name_in_any_case(tmp_path: Path) -> None:
    text = '[targets.Shop]\nurl = "postgresql://localhost/a"\n'
    environ = {
        "HERMOD_TARGETS__SHOP__URL": "postgresql://localhost/b",
        "HERMOD_TARGETS__BILLING_EU__URL": "postgresql://localhost/c",
    }
    targets = load(tmp_path, text, environ).targets
    assert {name: target.url for name, target in targets.items()} == {
        "Shop": "postgresql://localhost/b",
        "billing_eu": "postgresql://localhost/c",
    }


def test_a_list_is_given_whole_with_commas_or_entry_by_entry(tmp_path: Path) -> None:
    environ = {"HERMOD_ACCESS__USERS": "U1, U2", "HERMOD_ACCESS__USERS__2": "U3", "HERMOD_ACCESS__CHANNELS__0": "C1"}
    access = load(tmp_path, '[access]\nusers = ["U0"]\nchannels = ["C0", "C2"]\n', environ).access
    assert access.users == ("U1", "U2", "U3")
    assert access.channels == ("C1", "C2")


def test_a_table_of_lists_is_addressed_by_name(tmp_path: Path) -> None:
    environ = {"HERMOD_TARGETS__SHOP__URL": "postgresql://h/d", "HERMOD_ACCESS__CHANNEL_TARGETS__C1": "shop"}
    assert load(tmp_path, "", environ).access.channel_targets == {"c1": ("shop",)}


def test_booleans_and_numbers_of_the_environment_are_read(tmp_path: Path) -> None:
    environ = {"HERMOD_ACCESS__ALLOW_GUESTS": "true", "HERMOD_LIMITS__COST_USD": "0.25"}
    settings = load(tmp_path, "", environ)
    assert settings.access.allow_guests is True
    assert settings.limits.cost_usd == 0.25


def test_every_scalar_key_can_be_set_by_the_variable_that_is_documented(tmp_path: Path) -> None:
    values = {"text": "x", "whole number": "x", "number": "x", "true or false": "x", "secret text": "x"}
    for doc in describe_settings():
        variable = "HERMOD_" + doc.key.replace("[]", ".0").replace(".", "__").upper()
        with pytest.raises(SettingsError) as caught:
            load(tmp_path, "", {variable: values.get(doc.type, "x"), "HERMOD_LIMITS__MAX_STEPS": "0"})
        assert not any("unknown" in line for line in caught.value.problems), variable


# -- secrets ---------------------------------------------------------------------------------------


def test_a_secret_can_come_from_a_file_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("xoxb-from-file\n")
    text = '[slack]\nbot_token_file = "token"\napp_token = "xapp-1"\n'
    slack = load(tmp_path, text).slack
    assert slack is not None
    assert slack.bot_token is not None
    assert slack.bot_token.get_secret_value() == "xoxb-from-file"


def test_a_secret_can_come_from_a_named_variable(tmp_path: Path) -> None:
    text = '[targets.shop]\nurl = "postgresql://reader@db/shop"\npassword_env = "SHOP_PW"\n'
    target = load(tmp_path, text, {"SHOP_PW": "p@ss/w"}).targets["shop"]
    assert target.password is not None
    assert target.build_url() == "postgresql://reader:p%40ss%2Fw@db/shop"


def test_the_environment_replaces_another_way_of_giving_the_same_secret(tmp_path: Path) -> None:
    text = '[slack]\nbot_token_env = "NOT_SET"\napp_token = "xapp-1"\n'
    slack = load(tmp_path, text, {"HERMOD_SLACK__BOT_TOKEN": "xoxb-2"}).slack
    assert slack is not None
    assert slack.bot_token is not None
    assert slack.bot_token.get_secret_value() == "xoxb-2"


def test_two_ways_of_giving_one_secret_in_one_place_are_a_mistake(tmp_path: Path) -> None:
    text = '[slack]\nbot_token = "xoxb-1"\nbot_token_env = "B"\napp_token = "xapp-1"\n'
    assert problems(tmp_path, text, {"B": "xoxb-2"}) == (
        "hermod.toml: slack.bot_token_env: give only one of bot_token, bot_token_env",
    )


def test_a_named_variable_or_file_that_is_not_there_is_a_mistake_and_only_that(tmp_path: Path) -> None:
    text = '[slack]\nbot_token_env = "NOT_SET"\napp_token_file = "nowhere"\n'
    assert problems(tmp_path, text) == (
        "hermod.toml: slack.bot_token_env: the variable that it names is not set; export it, or name another one",
        "hermod.toml: slack.app_token_file: the file that it names does not exist; create it, or name another one",
    )


def test_all_secret_values_are_known_to_the_redactor(tmp_path: Path) -> None:
    text = SLACK + (
        '[[models]]\nmodel = "m"\nbase_url = "http://u:urlpass@localhost/"\napi_key = "model-key"\n'
        '[targets.shop]\nurl = "postgresql://u:p%40ss@db/shop"\n'
        '[cache]\nredis_url = "redis://:redispass@localhost"\n'
    )
    environ = {"OPENAI_API_KEY": "ambient-key", "PGPASSWORD": "ambient-password", "HOME": "/root", "X_TOKEN": "short"}
    assert set(load(tmp_path, text, environ).secrets()) == {
        "xoxb-1", "xapp-1", "urlpass", "model-key", "p%40ss", "p@ss", "redispass", "ambient-key", "ambient-password",
    }  # fmt: skip


def test_passwords_among_the_parameters_of_a_url_are_secrets(tmp_path: Path) -> None:
    text = '[targets.s]\nurl = "postgresql://u@h/d?password=p%40ss-1&sslmode=require&sslpassword=key-pass"\n'
    assert set(load(tmp_path, text).secrets()) == {"p@ss-1", "key-pass"}


def test_no_secret_shows_in_the_representation_of_settings(tmp_path: Path) -> None:
    text = SLACK + '[[models]]\nmodel = "m"\napi_key = "sekret-1"\n[targets.s]\nurl = "postgresql://u:sekret-2@h/d"\n'
    shown = repr(load(tmp_path, text, {"OPENAI_API_KEY": "sekret-3"}))
    assert "sekret" not in shown
    assert "xoxb" not in shown


@given(
    where=st.sampled_from(["limits.max_steps", "slack.mode", "http.port", "models.0.kind", "targets.a.url", "slack"])
)
def test_no_mistake_repeats_a_value(tmp_path_factory: pytest.TempPathFactory, where: str) -> None:
    path = tmp_path_factory.mktemp("settings")
    variable = "HERMOD_" + where.replace(".", "__").upper()
    for line in problems(path, "", {variable: "sekret://sekret@sekret:sekret", "HERMOD_NOSUCH": "sekret"}):
        assert "sekret" not in line


# -- mistakes --------------------------------------------------------------------------------------


def test_all_mistakes_of_all_kinds_are_told_at_once_with_place_and_remedy(tmp_path: Path) -> None:
    text = (
        '[limits]\nmax_step = 3\ntokens = "many"\n'
        '[slack]\nmode = "carrier-pigeon"\nbot_token = "xapp-1"\n'
        '[targets.shop]\npassword = "x"\n'
        '[targets.logs]\nurl = "ftp://x"\n'
        '[[models]]\nkind = "anthropic"\n'
        "[discord]\n"
        '[storage]\nurl = "postgresql://db/hermod"\n'
    )
    environ = {"HERMOD_HTTP__PORT": "99999", "HERMOD_LIMIT__MAX_STEPS": "3"}
    assert sorted(problems(tmp_path, text, environ, missing=("slack_bolt", "anthropic", "psycopg_pool"))) == [
        "HERMOD_HTTP__PORT: must be at most 65535",
        "HERMOD_LIMIT__MAX_STEPS: unknown setting; did you mean HERMOD_LIMITS__MAX_STEPS?",
        "hermod.toml: discord.token: missing; set token, token_env or token_file "
        "(discord.com/developers/applications, page Bot)",
        "hermod.toml: limits.max_step: unknown key; did you mean max_steps?",
        "hermod.toml: limits.tokens: must be a whole number",
        "hermod.toml: models[0].api_key: missing; set api_key, api_key_env or api_key_file "
        "(only an endpoint with a base_url may do without)",
        "hermod.toml: models[0].kind: missing extra anthropic; install it with: pip install 'hermod-bot[anthropic]'",
        "hermod.toml: models[0].model: missing; set the vendor's name of the model, such as gpt-4o-mini",
        "hermod.toml: slack.app_token: missing; set app_token, app_token_env or app_token_file (xapp-...)",
        "hermod.toml: slack.bot_token: holds a token that starts with xapp-; a bot_token starts with xoxb-",
        "hermod.toml: slack.mode: must be 'socket' or 'http'",
        "hermod.toml: slack: missing extra slack; install it with: pip install 'hermod-bot[slack]'",
        "hermod.toml: storage.url: missing extra postgres; install it with: pip install 'hermod-bot[postgres]'",
        "hermod.toml: targets.logs.url: must start with postgresql://, mysql://, sqlite:/// or slowlog:///",
        "hermod.toml: targets.shop.url: missing; set it",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "line"),
    [
        ("HERMOD_SLACK_BOT_TOKEN", "unknown setting; did you mean HERMOD_SLACK__BOT_TOKEN?"),
        ("HERMOD_QUUX", "unknown setting; see docs/settings.md, or unset it"),
        ("HERMOD_SLACK", "this is a table; set its keys, such as HERMOD_SLACK__BOT_TOKEN"),
        ("HERMOD_TARGETS", "this is a table; set its keys, such as HERMOD_TARGETS__NAME__URL"),
        ("HERMOD_MODELS", "this is a table; set its keys, such as HERMOD_MODELS__0__NAME"),
        ("HERMOD_MODELS__0", "set a key of the entry, such as HERMOD_MODELS__0__NAME"),
        ("HERMOD_MODELS__X__NAME", "entries of models are counted from 0; the next one is 0"),
        ("HERMOD_MODELS__7__NAME", "entries of models are counted from 0; the next one is 0"),
        ("HERMOD_HTTP__PORT__X", "unknown setting: HERMOD_HTTP__PORT is a single value; see docs/settings.md"),
    ],
)
def test_a_variable_that_names_no_key_is_a_mistake(tmp_path: Path, variable: str, line: str) -> None:
    assert f"{variable}: {line}" in problems(tmp_path, "", {variable: "1"})


def test_reserved_variables_are_not_keys(tmp_path: Path) -> None:
    load(tmp_path, "", {"HERMOD_MODEL": "m", "HERMOD_REQUIRE_SERVICES": "1", "HERMOD_CONFIG": "elsewhere"})


def test_a_missing_or_broken_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path / "no.toml", {})
    assert caught.value.problems == (
        f"{tmp_path}/no.toml: no such file; give an existing one with --config or HERMOD_CONFIG",
    )
    (line,) = problems(tmp_path, '[slack]\nbot_token = "xoxb-sekret')
    assert line.startswith("hermod.toml: not valid TOML: ")
    assert "sekret" not in line


def test_a_folder_in_place_of_the_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path, {})
    assert "cannot be read" in caught.value.problems[0]


def test_a_missing_extra_of_a_target_names_the_pip_line(tmp_path: Path) -> None:
    text = '[targets.shop]\nurl = "postgresql://db/shop"\n'
    assert problems(tmp_path, text, missing=("psycopg",)) == (
        "hermod.toml: targets.shop.url: missing extra postgres; install it with: pip install 'hermod-bot[postgres]'",
    )


@pytest.mark.parametrize(
    "url", ["postgresql://", "postgresql://h:port/d", "mysql:///d", "sqlite://x", "slowlog:x", "shop", "postgresql:x"]
)
def test_a_target_url_that_leads_nowhere_is_a_mistake(tmp_path: Path, url: str) -> None:
    assert "targets.shop.url: must " in problems(tmp_path, f'[targets.shop]\nurl = "{url}"\n')[0]


@pytest.mark.parametrize(
    "url",
    ["postgres://h/d", "mysql://u@h:3306/d", "sqlite:///a.db", "slowlog:///var/log/x?format=auto", "mariadb://h/d"],
)
def test_every_kind_of_target_of_the_contract_is_accepted(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, f'[targets.shop]\nurl = "{url}"\n').targets["shop"].url == url


def test_target_names_that_differ_only_in_case_are_a_mistake(tmp_path: Path) -> None:
    text = '[targets.a]\nurl = "postgresql://h/d"\n[targets.A]\nurl = "postgresql://h/d"\n'
    assert problems(tmp_path, text)[0].endswith("another name differs only in its case; rename one of them")


def test_two_models_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    text = '[[models]]\nkind = "offline"\n[[models]]\nkind = "offline"\n'
    assert problems(tmp_path, text) == ("hermod.toml: models[1].name: another model has this name; give each its own",)


def test_a_model_without_key_is_a_mistake_unless_it_has_its_own_endpoint(tmp_path: Path) -> None:
    text = '[[models]]\nmodel = "m"\n'
    assert problems(tmp_path, text)[0].startswith("hermod.toml: models[0].api_key: missing; set api_key, ")
    assert load(tmp_path, text, {"OPENAI_API_KEY": "k"}).models
    assert load(tmp_path, text + 'base_url = "http://localhost:11434/v1"\n').models


def test_a_channel_may_only_be_given_targets_that_exist(tmp_path: Path) -> None:
    assert problems(tmp_path, '[access.channel_targets]\nC1 = ["shop"]\n') == (
        "hermod.toml: access.channel_targets.C1[0]: no target has this name; add [targets.NAME], or mend the name",
    )


def test_a_report_is_checked_although_it_is_not_used_yet(tmp_path: Path) -> None:
    text = '[reports.daily]\ncron = "9"\ntimezone = "Mars/Base"\nchannel = "C1"\ntask = "t"\n'
    assert [line.partition(": ")[2].partition(":")[0] for line in problems(tmp_path, text)] == [
        "reports.daily.cron",
        "reports.daily.timezone",
        "reports.daily.channel",
    ]


@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
        max_leaves=6,
    ),
    key=st.sampled_from(["slack", "models", "targets", "limits", "access", "tools", "reports", "storage"]),
)
def test_whatever_stands_in_a_file_is_accepted_or_told_but_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: object, key: str
) -> None:
    def dump(value: object) -> str:
        match value:
            case None:
                return '""'
            case bool():
                return str(value).lower()
            case dict():
                return "{" + ", ".join(f"{dump(name)} = {dump(item)}" for name, item in value.items()) + "}"
            case list():
                return "[" + ", ".join(map(dump, value)) + "]"
            case str():
                return '"' + "".join(f"\\U{ord(c):08x}" if c < "\ud800" or c > "\udfff" else "?" for c in value) + '"'
            case _:
                return str(value)

    path = tmp_path_factory.mktemp("settings")
    lines: tuple[str, ...] | None = None
    try:
        load(path, f"{key} = {dump(data)}\n")
    except SettingsError as error:
        lines = error.problems
    assert lines is None or (lines and all("\n" not in line and ": " in line for line in lines))


# -- what follows from settings --------------------------------------------------------------------


def test_without_models_a_key_in_the_environment_gives_one_openai_model(tmp_path: Path) -> None:
    environ = {"OPENAI_API_KEY": "k"}
    (model,) = load(tmp_path, "", environ).effective_models(environ)
    assert (model.kind, model.model, model.base_url) == ("openai", "gpt-4o-mini", "https://api.openai.com/v1")
    environ |= {"OPENAI_BASE_URL": "http://localhost:1/v1", "HERMOD_MODEL": "m"}
    (model,) = load(tmp_path, "", environ).effective_models(environ)
    assert (model.model, model.base_url) == ("m", "http://localhost:1/v1")


def test_without_models_and_key_the_offline_model_serves(tmp_path: Path) -> None:
    (model,) = load(tmp_path).effective_models({"OPENAI_API_KEY": ""})
    assert (model.kind, model.name) == ("offline", "offline")


def test_the_ambient_key_never_goes_to_an_endpoint_of_the_file(tmp_path: Path) -> None:
    text = '[[models]]\nmodel = "local"\nbase_url = "http://localhost:1"\n[[models]]\nmodel = "gpt"\n'
    environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://proxy.example/v1"}
    local, gpt = load(tmp_path, text, environ).effective_models(environ)
    assert (local.api_key, local.base_url, local.name) == (None, "http://localhost:1", "local")
    assert gpt.api_key is not None
    assert (gpt.api_key.get_secret_value(), gpt.base_url) == ("k", "https://proxy.example/v1")


def test_a_key_of_the_file_never_goes_to_the_ambient_endpoint(tmp_path: Path) -> None:
    environ = {"OPENAI_BASE_URL": "https://proxy.example/v1"}
    (model,) = load(tmp_path, '[[models]]\nmodel = "gpt"\napi_key = "k"\n').effective_models(environ)
    assert model.base_url == "https://api.openai.com/v1"


def test_an_anthropic_model_takes_its_own_key_from_the_environment_and_no_other(tmp_path: Path) -> None:
    environ = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}
    text = '[[models]]\nkind = "anthropic"\nmodel = "claude"\n'
    (model,) = load(tmp_path, text, environ).effective_models(environ)
    assert model.api_key is not None
    assert (model.api_key.get_secret_value(), model.base_url) == ("a", None)
    assert "models[0].api_key" in problems(tmp_path, text, {"OPENAI_API_KEY": "o"})[0]


@pytest.mark.parametrize(
    ("text", "missing", "line"),
    [
        (
            "[cache]\nsemantic = true\n",
            (),
            "cache.semantic: needs a model with an embedding_model; set one in [[models]], or semantic = false",
        ),
        ('[cache]\nbackend = "redis+milvus"\n', (), 'cache.redis_url: missing; the backend "redis+milvus" needs it'),
        (
            '[cache]\nbackend = "redis+milvus"\nredis_url = "redis://h"\n',
            ("redis",),
            "cache.backend: missing extra cache; install it with: pip install 'hermod-bot[cache]'",
        ),
        (
            "[workers.security]\n",
            (),
            "workers.security.description: missing; say what the worker finds out, so that tasks can be given to it",
        ),
        (
            '[workers.analyst]\nmodel = "gpt"\n',
            (),
            "workers.analyst.model: no entry of [[models]] has this name; mend it",
        ),
        (
            '[otel]\nendpoint = "http://127.0.0.1:4318"\n',
            ("opentelemetry.exporter",),
            "otel.endpoint: missing extra otel; install it with: pip install 'hermod-bot[otel]'",
        ),
        ('[otel]\nendpoint = "127.0.0.1"\n', (), "otel.endpoint: must be a URL that starts with http:// or https://"),
        ('[otel]\nsemconv = "v1"\n', (), "otel.semconv: must be 'v1.41' or 'latest'"),
        (
            '[[models]]\nkind = "anthropic"\nmodel = "m"\napi_key = "k"\nembedding_model = "e"\n',
            (),
            "models[0].embedding_model: only models of the kind openai can have one; remove it",
        ),
    ],
)
def test_what_a_model_cache_worker_or_export_lacks_is_told(
    tmp_path: Path, text: str, missing: tuple[str, ...], line: str
) -> None:
    assert problems(tmp_path, text, {}, missing) == (f"hermod.toml: {line}",)


def test_keys_without_effect_yet_are_named_for_the_log(tmp_path: Path) -> None:
    text = '[[models]]\nkind = "offline"\n[retention]\nsnapshots_days = 3\nusage_days = 5\n'
    notices = load(tmp_path, text, {"HERMOD_RETENTION__RUNS_DAYS": "5"}).notices
    assert [line.replace(f"{tmp_path}/", "") for line in notices] == [
        "HERMOD_RETENTION__RUNS_DAYS: not used yet in this release",
        "hermod.toml: retention.usage_days: not used yet in this release",
    ]


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = load(tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        settings.limits.max_steps = 3  # type: ignore[misc]
