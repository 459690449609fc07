"""The databases that tools may look at, by their configured names.

A model only ever says a name. The address behind it, and above all the password, stay in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from agent_core.errors import ConfigError, ToolFailed

Engine = Literal["postgresql", "mysql", "sqlite", "slowlog"]

_ENGINES: Mapping[str, Engine] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
    "slowlog": "slowlog",
}
_ENGINE_WORDS: Mapping[Engine, str] = {
    "postgresql": "a Postgres database",
    "mysql": "a MySQL or MariaDB database",
    "sqlite": "an SQLite file",
    "slowlog": "a slow-query log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One database, taken apart.

    Args:
        name: what people call it.
        engine: by the URL's scheme.
        host, port: as libpq takes them (several are comma-separated); empty means its default.
        user, database: empty means the driver's default. For files, ``database`` is the path.
        password: None when there is none.
        options: further parameters of the URL, for example ``sslrootcert``.
        sslmode: libpq's word, or None for its default.
        allow_sql: the operator lets people run their own read-only SQL here.
        accept_risks: dangerous rights of the account that the operator accepts, for example ``superuser``.
    """

    name: str
    engine: Engine
    host: str = field(default="", repr=False)
    port: str = field(default="", repr=False)
    user: str = ""
    database: str = ""
    password: SecretStr | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    sslmode: str | None = None
    allow_sql: bool = False
    accept_risks: frozenset[str] = frozenset()

    @classmethod
    def from_url(
        cls,
        name: str,
        url: str,
        *,
        password: str | None = None,
        sslmode: str | None = None,
        allow_sql: bool = False,
        accept_risks: Iterable[str] = (),
    ) -> Self:
        """Take a URL apart; ``password`` and ``sslmode`` win over what it says.

        Raises:
            ConfigError: the scheme is not known or the URL is malformed. The message does not repeat the URL.
        """
        scheme = url.partition(":")[0].lower()
        engine = _ENGINES.get(scheme)
        if engine is None:
            raise ConfigError(f"target {name!r}: the URL has to start with one of {', '.join(_ENGINES)} and ://")
        try:
            parts = urlsplit(url)
            query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise ConfigError(f"target {name!r}: the URL cannot be read; percent-encode special characters") from error
        account, _, places = parts.netloc.rpartition("@")
        user, _, secret = account.partition(":")
        hosts, ports = _split_places(places)
        secret = password or query.pop("password", "") or unquote(secret)
        file_like = engine in ("sqlite", "slowlog")
        return cls(
            name=name,
            engine=engine,
            host=query.pop("host", hosts),
            port=query.pop("port", ports),
            user=query.pop("user", unquote(user)),
            database=unquote(parts.path if file_like else query.pop("dbname", parts.path.lstrip("/"))),
            password=SecretStr(secret) if secret else None,
            sslmode=sslmode or query.pop("sslmode", None),
            options={key: value for key, value in query.items() if key != "sslmode"},
            allow_sql=allow_sql,
            accept_risks=frozenset(accept_risks),
        )

    def describe(self) -> str:
        """The target in words, without address or secrets: ``target 'shop' (a Postgres database)``."""
        return f"target {self.name!r} ({_ENGINE_WORDS[self.engine]})"

    def require(self, *engines: Engine, tool: str) -> None:
        """Check that a tool can work here; ``engines`` are those that it serves.

        Raises:
            ToolFailed: code ``unsupported``, naming what the target is and what the tool serves.
        """
        if self.engine not in engines:
            served = " and ".join(_ENGINE_WORDS[engine] for engine in engines)
            raise ToolFailed(
                f"{tool} cannot read {self.describe()}; it serves {served} only",
                code="unsupported",
                fix=f"ask for a target with a {' or '.join(f'{engine}://' for engine in engines)} URL",
            )


def _split_places(places: str) -> tuple[str, str]:
    """``a:1,[::1]:2`` -> ``a,::1`` and ``1,2``."""
    hosts: list[str] = []
    ports: list[str] = []
    for place in places.split(","):
        host, colon, port = place.rpartition(":")
        if not colon or "]" in port:
            host, port = place, ""
        hosts.append(unquote(host.removeprefix("[").removesuffix("]")))
        ports.append(port)
    return ",".join(hosts).strip(","), ",".join(ports).strip(",")


class Targets(Mapping[str, Target]):
    """All configured targets by name; immutable."""

    def __init__(self, targets: Iterable[Target] = ()) -> None:
        self._targets = {target.name: target for target in targets}

    def __getitem__(self, name: str) -> Target:
        return self._targets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def resolve(self, name: str | None) -> Target:
        """Return the named target; without a name the only one.

        Raises:
            ToolFailed: code ``unknown_target``; the message names the configured ones.
        """
        if name is not None and (target := self._targets.get(name.strip())) is not None:
            return target
        if name is None and len(self._targets) == 1:
            return next(iter(self._targets.values()))
        if not self._targets:
            raise ToolFailed(
                "no database is configured",
                code="unknown_target",
                fix='add a table [targets.NAME] with url = "postgresql://..." to hermod.toml',
            )
        known = ", ".join(sorted(self._targets))
        asked = "several databases are configured" if name is None else f"there is no target {name[:60]!r}"
        raise ToolFailed(f"{asked}; name one of: {known}", code="unknown_target", fix=f"pass target as one of: {known}")
