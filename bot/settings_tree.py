"""The tree of settings: every key of ``hermod.toml``, its type, default, bounds and description.

Plain pydantic models, not pydantic-settings: its import alone costs twice pydantic's CPU, and it can neither
address arrays by index nor name every mistake at once. Reading and merging is in ``bot.settings_sources``,
checks across keys are in ``bot.settings_checks``.

A key whose feature this release does not have carries ``LATER``: it is validated, and has no effect yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.config import JsonDict

LATER: JsonDict = {"later": True}
"""Marks a field or a section that this release reads and checks but does not use."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]


class Section(BaseModel):
    """A table of the settings: immutable, unknown keys refused, values never shown in errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _env_of(name: str) -> str:
    return f"Name of the environment variable that holds `{name}`."


def _file_of(name: str) -> str:
    return f"File that holds `{name}` (white space around it is dropped)."


class StorageSettings(Section):
    """Where Hermod keeps its rows."""

    url: str = Field(
        default="sqlite:///hermod.db",
        repr=False,
        description="The database of Hermod itself (docs/storage.md), as `sqlite:///relative.db`, "
        "`sqlite:////absolute.db` or `postgresql://USER:PASSWORD@HOST/DATABASE`.",
    )


class ModelSettings(Section):
    """One language model; the list is tried by priority, then by weight."""

    name: str = Field(default="", description="Name in errors and logs; empty: the model's own name.")
    kind: Literal["openai", "anthropic", "offline"] = Field(
        default="openai",
        description="`openai` speaks to any OpenAI-compatible endpoint, `anthropic` to Anthropic's Messages (extra "
        "`anthropic`); `offline` uses no model at all.",
    )
    model: str = Field(default="", description="The vendor's name of the model; needed unless the kind is `offline`.")
    base_url: str | None = Field(
        default=None, repr=False, description="Endpoint; empty: the vendor's own (`https://api.openai.com/v1`)."
    )
    api_key: SecretStr | None = Field(default=None, description="Key of the endpoint; may be left out for a local one.")
    api_key_env: str | None = Field(default=None, description=_env_of("api_key"))
    api_key_file: str | None = Field(default=None, description=_file_of("api_key"))
    weight: float = Field(
        default=1.0,
        ge=0,
        le=1_000_000,
        description="Share of the first requests within one priority; the others are the fallback. 0: only a fallback.",
    )
    priority: int = Field(default=0, ge=0, le=1000, description="Lower numbers are asked first.")
    timeout_s: Seconds = Field(default=60.0, description="Bound of one request, streaming included, in seconds.")
    temperature: float | None = Field(
        default=0.7, ge=0, le=2, description="Randomness of the answers; that of the first model counts."
    )
    max_tokens: Count | None = Field(
        default=4096, description="Bound of one answer, in tokens; that of the first model counts."
    )
    max_concurrency: Count | None = Field(default=None, description="Requests at a time; empty: no bound.")
    tool_calls: Literal["native", "prompted"] = Field(
        default="native", description="`prompted` is for models that cannot call functions: they are asked for JSON."
    )
    embedding_model: str | None = Field(
        default=None, description="Model of the same endpoint for the semantic cache (kind `openai`)."
    )
    input_usd_per_mtok: float | None = Field(
        default=None, ge=0, le=1_000_000, description="Price of a million input tokens; empty: the built-in price list."
    )
    output_usd_per_mtok: float | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Price of a million output tokens; empty: the built-in price list.",
    )


class RouterSettings(Section):
    """How often a model is asked again, and when it is left alone for a while."""

    max_attempts: int = Field(default=3, ge=1, le=20, description="Requests for one answer, over all models together.")
    backoff_base_s: Seconds = Field(default=2.0, description="Wait before the second attempt, in seconds; it doubles.")
    backoff_cap_s: Seconds = Field(default=30.0, description="Longest wait between attempts, in seconds.")
    failure_threshold: int = Field(default=3, ge=1, le=1000, description="Failures in a row that open the breaker.")
    recovery_timeout_s: Seconds = Field(default=60.0, description="Seconds until an open breaker lets one probe pass.")


class LimitSettings(Section):
    """What one run may use. A limit that is reached ends the run with what is known so far."""

    max_steps: int = Field(default=10, ge=1, le=200, description="Model calls in one run.")
    run_deadline_s: Seconds = Field(default=120.0, description="Wall-clock bound of one run, in seconds.")
    max_same_action: int = Field(default=3, ge=2, le=100, description="Same tool, same arguments, so often in a row.")
    tool_timeout_s: Seconds = Field(default=30.0, description="Bound of one tool call, in seconds.")
    memory_tokens: int = Field(default=8000, ge=500, le=2_000_000, description="Tokens of history in one request.")
    queue_per_thread: int = Field(default=50, ge=1, le=10_000, description="Messages that may wait in one thread.")
    requests: Count | None = Field(default=None, description="Model requests in one run; empty: no bound.")
    tool_calls: Count | None = Field(default=None, description="Tool calls in one run; empty: no bound.")
    tokens: Count | None = Field(default=None, description="Tokens in one run, in and out; empty: no bound.")
    cost_usd: float | None = Field(
        default=None, gt=0, le=1_000_000, description="US dollars of one run; empty: no bound."
    )


class CacheSettings(Section):
    """The cache of model answers."""

    exact: bool = Field(default=True, description="Answer an identical request from the cache.")
    semantic: bool = Field(default=False, description="Answer a restated request from the cache.")
    threshold: float = Field(default=0.92, gt=0, lt=1, description="Cosine score that a restatement must exceed.")
    backend: Literal["memory", "redis+milvus"] = Field(default="memory", description="Where answers are kept.")
    redis_url: str | None = Field(default=None, repr=False, description="Redis of the exact tier.")
    milvus_uri: str | None = Field(default=None, repr=False, description="Milvus of the semantic tier.")
    ttl_s: float = Field(default=3600.0, gt=0, le=31_536_000, description="Life of an exact entry, in seconds.")


class SlackSettings(Section):
    """The Slack app. The table's presence switches the adapter on; it needs the extra `slack`."""

    bot_token: SecretStr | None = Field(default=None, description="Bot token (`xoxb-...`).")
    bot_token_env: str | None = Field(default=None, description=_env_of("bot_token"))
    bot_token_file: str | None = Field(default=None, description=_file_of("bot_token"))
    app_token: SecretStr | None = Field(default=None, description="App-level token of Socket Mode (`xapp-...`).")
    app_token_env: str | None = Field(default=None, description=_env_of("app_token"))
    app_token_file: str | None = Field(default=None, description=_file_of("app_token"))
    signing_secret: SecretStr | None = Field(
        default=None, description='Signing secret of HTTP events; needed with `mode = "http"`.'
    )
    signing_secret_env: str | None = Field(default=None, description=_env_of("signing_secret"))
    signing_secret_file: str | None = Field(default=None, description=_file_of("signing_secret"))
    client_id: str | None = Field(
        default=None,
        description="Lets many workspaces install Hermod (docs/slack-workspaces.md); it needs `client_secret`, "
        "`public_url` and `security.key`, and no `bot_token`.",
    )
    client_secret: SecretStr | None = Field(default=None, description="Client secret of the app, for `client_id`.")
    client_secret_env: str | None = Field(default=None, description=_env_of("client_secret"))
    client_secret_file: str | None = Field(default=None, description=_file_of("client_secret"))
    public_url: str | None = Field(
        default=None,
        description="Where browsers reach the HTTP port, such as `https://hermod.example.com`; with `client_id` "
        "`/slack/install` below it begins an installation.",
    )
    mode: Literal["socket", "http"] = Field(
        default="socket",
        description="How events arrive: Hermod asks for them, or Slack sends them to `/slack/events` of the HTTP port.",
    )
    api_url: str = Field(default="https://slack.com/api/", description="Base of the Web API, ending in `/`.")
    command_prefix: str = Field(
        default="",
        max_length=20,
        description="Put before the names of slash commands, such as `dev-`; for a second app in one workspace.",
    )


class DiscordSettings(Section):
    """The Discord bot. The table's presence switches the adapter on; it needs the extra `discord`."""

    token: SecretStr | None = Field(default=None, description="Bot token, from the application's page Bot.")
    token_env: str | None = Field(default=None, description=_env_of("token"))
    token_file: str | None = Field(default=None, description=_file_of("token"))
    api_url: str = Field(default="https://discord.com/api/v10", description="Base of the REST API.")
    gateway_url: str | None = Field(default=None, description="Gateway; empty: the one that the API names.")
    guild_ids: tuple[str, ...] = Field(
        default=(), description="Guilds that alone get the slash commands, at once (development); empty: all guilds."
    )
    shard_count: Count | None = Field(default=None, description="Number of shards; empty: what Discord recommends.")
    shard_ids: tuple[int, ...] = Field(default=(), description="Shards of this process; empty: all.")
    processes: Count = Field(
        default=1,
        description="Processes of this bot side by side; each takes its part of the 50 calls a second that Discord "
        "allows all of them.",
    )


class HttpSettings(Section):
    """The HTTP port of `hermod run`: `/healthz`, `/readyz`, `/metrics`."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8484, ge=0, le=65535, description="Port; 0 takes a free one.")


class TargetSettings(Section):
    """A database that the tools may look at; the table's name is what people call it."""

    url: str = Field(
        repr=False,
        description="`postgresql://user@host:5432/db`, `mysql://user@host:3306/db` (MariaDB too), `sqlite:///FILE` or, "
        "for slow logs, `slowlog:///FOLDER`.",
    )
    password: SecretStr | None = Field(default=None, description="Password, if it is not a part of the URL.")
    password_env: str | None = Field(default=None, description=_env_of("password"))
    password_file: str | None = Field(default=None, description=_file_of("password"))
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] | None = Field(
        default=None, description="TLS of the connection, in libpq's words; empty: what the URL or libpq says."
    )
    allow_sql: bool = Field(default=False, description="Lets `run_readonly_sql` query this database.")
    accept_risks: tuple[Literal["superuser", "file_privilege", "write_privilege"], ...] = Field(
        default=(),
        description="Rights of the account that are accepted although they are dangerous; without them such an account "
        "is refused. `hermod targets grant NAME` prints a safe one.",
    )

    @property
    def engine(self) -> str:
        """``postgresql``, ``mysql``, ``sqlite`` or ``slowlog``."""
        scheme = self.url.partition(":")[0].lower()
        return {"postgres": "postgresql", "mariadb": "mysql"}.get(scheme, scheme)

    def build_url(self) -> str:
        """Return ``url`` with ``password`` put in. The result is a secret: hand it to a driver only."""
        if self.password is None:
            return self.url
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        user = parts.username or ""  # still percent-encoded
        netloc = f"{user}:{quote(self.password.get_secret_value(), safe='')}@{host}"
        return urlunsplit(parts._replace(netloc=netloc))


class SandboxSettings(Section):
    """The sandbox of `run_python` (docs/sandbox.md)."""

    enabled: bool = Field(default=True, description="Offer `run_python`, where a backend can lock code in.")
    backend: Literal["auto", "namespaces", "landlock", "runner", "none-i-accept-host-code-execution"] = Field(
        default="auto", description="How code is locked in; `auto` takes the strongest that works here."
    )
    timeout_s: float = Field(default=30.0, gt=0, le=60, description="Wall-clock bound, in seconds.")
    cpu_s: float = Field(default=5.0, gt=0, le=60, description="CPU bound, in seconds.")
    memory_mb: int = Field(
        default=512, ge=32, le=65_536, description="Memory bound above the preloaded packages, in MiB."
    )
    output_kb: int = Field(default=64, ge=1, le=10_240, description="Output bound, in KiB.")
    file_mb: int = Field(default=16, ge=1, le=1024, description="Bound of one file that code writes, in MiB.")
    scratch_mb: int = Field(default=64, ge=1, le=4096, description="Bound of all that a run writes, in MiB.")
    files_out: int = Field(default=10, ge=0, le=100, description="Files that a run may hand back.")
    files_out_mb: int = Field(default=8, ge=1, le=100, description="Bound of all of them together, in MiB.")
    files_in_mb: int = Field(default=20, ge=1, le=1024, description="Bound of one attached file, in MiB.")
    folder: str | None = Field(
        default=None, description="Where threads' files are kept; empty: `hermod-sandbox` beside the database."
    )
    keep_hours: float = Field(default=24, gt=0, le=8760, description="How long a thread's files are kept, in hours.")
    sessions: bool = Field(
        default=False, description="Let code keep its variables from one run of a thread to the next."
    )
    python: str | None = Field(
        default=None, description="Interpreter that runs the code; empty: Hermod's own, with the packages beside it."
    )
    runner_url: str | None = Field(
        default=None, repr=False, description="Address of `hermod sandbox serve`; needed by the backend `runner`."
    )
    runner_token: SecretStr | None = Field(default=None, description="What the runner asks for as its token.")
    runner_token_env: str | None = Field(default=None, description=_env_of("runner_token"))
    runner_token_file: str | None = Field(default=None, description=_file_of("runner_token"))


class AccessSettings(Section):
    """Who may use Hermod. An empty list sets no bound, except that only READ tools are open to everyone.

    Entries are ids (`C0123ABCD`), ids with their platform (`slack:C0123ABCD`), or full addresses
    (`slack:T0123/C0123ABCD`).
    """

    workspaces: tuple[str, ...] = Field(default=(), description="Slack teams and Discord guilds that may use it.")
    channels: tuple[str, ...] = Field(default=(), description="Channels (and direct messages) where it answers.")
    users: tuple[str, ...] = Field(default=(), description="People whom it answers.")
    bots: tuple[str, ...] = Field(
        default=(), description="Ids of other bots that it answers when they mention it; all others are not heard."
    )
    tools: tuple[str, ...] = Field(
        default=(), description="Tools that may be used; empty: every READ tool; `*`: all tools."
    )
    channel_targets: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Targets by channel (`*`: every other channel); once one is named, channels without an entry "
        "reach no target.",
    )
    allow_external: bool = Field(default=False, description="Answer people of other organisations (Slack Connect).")
    allow_guests: bool = Field(default=False, description="Answer guest accounts.")


class ReportSettings(Section):
    """A scheduled report; the table's name is the job's name (docs/jobs.md)."""

    cron: str = Field(description="When, as five cron fields, such as `0 9 * * MON-FRI`.")
    timezone: str = Field(default="UTC", description="Zone in which `cron` is read, such as `Europe/Berlin`.")
    channel: str = Field(description="Where it is posted: `slack:TEAM/CHANNEL`, `slack:C123`, `discord:GUILD/CHANNEL`.")
    task: str = Field(min_length=1, description="What the report is to find out.")
    workers: tuple[str, ...] = Field(default=(), description="Workers that look into it; empty: all.")
    targets: tuple[str, ...] = Field(default=(), description="Targets that it may use; empty: the channel's.")
    template: str | None = Field(
        default=None, description="Template of the report, such as `weekly-regression`; empty: `daily-database`."
    )
    catch_up: Literal["none", "latest", "all"] = Field(
        default="latest", description="Which missed times are made up for."
    )
    grace_s: float = Field(default=3600.0, ge=0, le=604_800, description="How late a missed time may still run.")
    overlap: Literal["skip", "queue"] = Field(default="skip", description="What happens when the last one still runs.")
    deadline_s: float = Field(default=600.0, ge=30, le=3600, description="How long making the report may take.")


class WorkerSettings(Section):
    """A worker; the table's name is its name. With one, the agent can hand tasks to it and to the built-in ones.

    The built-in ones are `sql_optimizer`, `report_generator`, `researcher` and `analyst`; a table of one of these names
    changes it.
    """

    description: str = Field(default="", description="What it finds out; needed unless it is a built-in one.")
    template: str | None = Field(default=None, description="Prompt template.")
    model: str | None = Field(default=None, description="Name of an entry of `models`; empty: the router decides.")
    tools: tuple[str, ...] = Field(default=(), description="Tools that it may use; empty: all READ tools.")
    temperature: float = Field(default=0.7, ge=0, le=2, description="Randomness of its answers.")
    max_tokens: Count = Field(default=4096, description="Bound of one answer, in tokens.")
    max_steps: int = Field(default=5, ge=1, le=200, description="Model calls in one run of it.")
    memory_tokens: int = Field(default=8000, ge=500, le=2_000_000, description="Tokens of history in one request.")


class PromptSettings(Section):
    """Prompt templates of your own."""

    folder: str | None = Field(default=None, description="Folder whose `*.md` files replace the templates of one name.")


class ResearchSettings(Section):
    """Search on the web and in papers, reading pages (docs/research.md)."""

    enabled: bool = Field(default=True, description="Offer the research tools. What they search for leaves the house.")
    provider: Literal["auto", "keyless", "searxng", "brave", "tavily"] = Field(
        default="auto",
        description="Who searches the web; `auto`: SearXNG with a `search_url`, Brave or Tavily with an `api_key` of "
        "theirs, else `keyless`, which needs the extra `research`.",
    )
    search_url: str | None = Field(
        default=None,
        description="Your SearXNG, such as `https://searx.example.com`, also in a private network; with `brave` or "
        "`tavily` another address of that API.",
        repr=False,
    )
    api_key: SecretStr | None = Field(default=None, description="Key of Brave or Tavily.")
    api_key_env: str | None = Field(default=None, description=_env_of("api_key"))
    api_key_file: str | None = Field(default=None, description=_file_of("api_key"))
    max_results: int = Field(
        default=10, ge=1, le=20, description="Most results of one search; a call gets 5 unless it asks for more."
    )
    timeout_s: float = Field(
        default=15.0, gt=0, le=120, description="Bound of one search or page, redirects included, in seconds."
    )
    allow_hosts: tuple[str, ...] = Field(
        default=(),
        description="Web servers outside the public internet that `read_webpage` may read all the same, as "
        "`wiki.example.com:443`.",
    )
    arxiv_url: str = Field(
        default="https://export.arxiv.org/api/query", description="Where arXiv is searched.", repr=False
    )
    semantic_scholar_url: str = Field(
        default="https://api.semanticscholar.org/graph/v1/paper/search",
        description="Where Semantic Scholar is searched.",
        repr=False,
    )
    semantic_scholar_key: SecretStr | None = Field(
        default=None, description="Key of Semantic Scholar; without one its searches are often refused as too many."
    )
    semantic_scholar_key_env: str | None = Field(default=None, description=_env_of("semantic_scholar_key"))
    semantic_scholar_key_file: str | None = Field(default=None, description=_file_of("semantic_scholar_key"))

    @property
    def searches_with(self) -> Literal["keyless", "searxng", "brave", "tavily"] | None:
        """Who searches the web; None where `auto` cannot tell whose key it is."""
        if self.provider != "auto":
            return self.provider
        key = "" if self.api_key is None else self.api_key.get_secret_value()
        if not key:
            return "searxng" if self.search_url else "keyless"
        if self.search_url:
            return None
        return "tavily" if key.startswith("tvly-") else "brave" if key.startswith("BSA") else None


class OtelSettings(Section):
    """OpenTelemetry export."""

    endpoint: str | None = Field(
        default=None, description="OTLP/HTTP endpoint, such as http://127.0.0.1:4318; empty: no export.", repr=False
    )
    semconv: Literal["v1.41", "latest"] = Field(
        default="v1.41", description="Semantic conventions of the names: those that every backend knows, or the newest."
    )
    content: bool = Field(default=False, description="Also export what was asked, found and answered, redacted.")


class CollectorSettings(Section):
    """The background collector of statement counters, in `hermod run`."""

    enabled: bool = Field(default=True, description="Take snapshots between questions, too.")
    interval_s: float = Field(default=60.0, ge=5, le=86_400, description="Seconds between snapshots.")


class RetentionSettings(Section):
    """How long rows are kept."""

    inbox_days: float = Field(
        default=7, ge=1, le=36_500, description="Answered messages of the inbox.", json_schema_extra=LATER
    )
    runs_days: float = Field(
        default=30, ge=1, le=36_500, description="Runs, their steps and traces.", json_schema_extra=LATER
    )
    usage_days: float = Field(default=400, ge=1, le=36_500, description="Usage rows.", json_schema_extra=LATER)
    snapshots_days: float = Field(default=32, ge=1, le=36_500, description="Snapshots of statement counters.")


class SecuritySettings(Section):
    """Keys of Hermod itself."""

    key: SecretStr | None = Field(
        default=None,
        description="Encrypts the tokens of workspaces that install Hermod: at least 16 random characters. To change "
        "it, put the new one before the old one, with a comma between.",
    )
    key_env: str | None = Field(default=None, description=_env_of("key"))
    key_file: str | None = Field(default=None, description=_file_of("key"))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, the newest first; none when there is none."""
        text = "" if self.key is None else self.key.get_secret_value()
        return tuple(key.strip() for key in text.split(",") if key.strip())


class ToolSettings(Section):
    """Tools of your own."""

    modules: tuple[str, ...] = Field(
        default=(),
        description="Importable Python modules with a `register(registry)` function (docs/adding-a-tool.md).",
    )


class SettingsTree(Section):
    """The root table; ``bot.settings.Settings`` adds what is derived from it."""

    storage: StorageSettings = Field(default_factory=StorageSettings, description="Where Hermod keeps its rows.")
    models: tuple[ModelSettings, ...] = Field(default=(), description="Language models.")
    router: RouterSettings = Field(default_factory=RouterSettings, description="Retries and breakers.")
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Bounds of one run.")
    cache: CacheSettings = Field(default_factory=CacheSettings, description="Cache of model answers.")
    slack: SlackSettings | None = Field(default=None, description="The Slack app.")
    discord: DiscordSettings | None = Field(default=None, description="The Discord bot.")
    http: HttpSettings = Field(default_factory=HttpSettings, description="The HTTP port.")
    targets: Mapping[str, TargetSettings] = Field(default_factory=dict, description="Databases by name.")
    sandbox: SandboxSettings = Field(default_factory=SandboxSettings, description="Sandbox of `run_python`.")
    access: AccessSettings = Field(default_factory=AccessSettings, description="Who may use what.")
    reports: Mapping[str, ReportSettings] = Field(default_factory=dict, description="Scheduled reports.")
    workers: Mapping[str, WorkerSettings] = Field(default_factory=dict, description="Workers of the supervisor.")
    prompts: PromptSettings = Field(default_factory=PromptSettings, description="Prompt templates.")
    research: ResearchSettings = Field(default_factory=ResearchSettings, description="Web research.")
    otel: OtelSettings = Field(default_factory=OtelSettings, description="OpenTelemetry.")
    collector: CollectorSettings = Field(default_factory=CollectorSettings, description="Background snapshots.")
    retention: RetentionSettings = Field(default_factory=RetentionSettings, description="How long rows are kept.")
    security: SecuritySettings = Field(default_factory=SecuritySettings, description="Keys of Hermod itself.")
    tools: ToolSettings = Field(default_factory=ToolSettings, description="Tools of your own.")
