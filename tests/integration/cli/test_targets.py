"""``hermod targets``: the list, the check, and scripts that make a real account which the tools can work with."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path

import psycopg
import pytest

from bot.tools.grants import PASSWORD
from tests.integration.cli.command import Done, hermod
from tests.servers.mariadb import MariaLab
from tests.servers.postgres import Lab

SECRET = "gr4nted-pa55"
_numbers = itertools.count(1)


def write_config(folder: Path, url: str, *, more: str = "") -> None:
    (folder / "hermod.toml").write_text(f'[targets.shop]\nurl = "{url}"\nallow_sql = true\n{more}')


def rows_of(done: Done) -> list[object]:
    assert done.code == 0, done.out + done.err
    rows = done.data["rows"]
    assert isinstance(rows, list)
    return rows


def test_targets_are_listed_without_their_addresses(tmp_path: Path) -> None:
    more = '[targets.logs]\nurl = "slowlog:///var/log/db"\n[targets.old]\nurl = "mysql://app:pw@h1/d"\n'
    more += 'accept_risks = ["superuser"]\n'
    write_config(tmp_path, f"postgresql://reader:{SECRET}@db.internal:5432/shop", more=more)
    done = hermod(tmp_path, "targets", "list")
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()] == [
        ["shop", "postgresql"],
        ["logs", "slowlog"],
        ["old", "mysql"],
    ]
    assert "accepted: superuser" in done.out
    assert SECRET not in done.out
    assert "db.internal" not in done.out
    listed = hermod(tmp_path, "targets", "list", "--json").data
    assert listed["schema"] == 1
    items = listed["items"]
    assert isinstance(items, list)
    assert items[0] == {
        "name": "shop", "engine": "postgresql", "account": "reader", "allow_sql": True, "accept_risks": [],
    }  # fmt: skip


def test_without_targets_the_list_says_how_to_add_one(tmp_path: Path) -> None:
    done = hermod(tmp_path, "targets", "list")
    assert (done.code, done.out) == (0, "")
    assert "[targets.NAME]" in done.err


def test_an_unknown_target_and_one_without_accounts_fail_with_a_remedy(tmp_path: Path) -> None:
    write_config(tmp_path, "sqlite:///x.db")
    done = hermod(tmp_path, "targets", "grant", "nope")
    assert (done.code, done.out) == (1, "")
    assert "name one of: shop" in done.err
    done = hermod(tmp_path, "targets", "grant", "shop", "--json")
    assert done.code == 1
    assert done.data["ok"] is False
    assert "right to read the file" in str(done.data["error"])


def test_the_script_is_printed_without_a_connection_or_a_secret(tmp_path: Path) -> None:
    write_config(tmp_path, f"postgresql://reader:{SECRET}@127.0.0.1:1/shop")
    done = hermod(tmp_path, "targets", "grant", "shop", "--account", "other", "--schema", "a", "--schema", "B c")
    assert done.code == 0
    assert done.err == ""
    assert SECRET not in done.out
    for line in ('CREATE ROLE "other" LOGIN', 'IN SCHEMA "a" TO "other"', 'IN SCHEMA "B c" TO "other"'):
        assert line in done.out
    assert (
        hermod(tmp_path, "targets", "grant", "shop", "--json").data["script"]
        == hermod(tmp_path, "targets", "grant", "shop").out.rstrip("\n") + "\n"
    )


@pytest.mark.timeout(400)
def test_the_printed_script_makes_a_postgres_account_that_the_tools_can_use(postgres: Lab, tmp_path: Path) -> None:
    database, account = asyncio.run(postgres.create_database()), f"chat reader {next(_numbers)}"
    url = postgres.server.url(database, user=account, password=SECRET)
    write_config(tmp_path, url)
    with psycopg.connect(postgres.server.url(database), autocommit=True) as admin:
        admin.execute("create table items (id int primary key, name text); insert into items values (1, 'one')")
        before = hermod(tmp_path, "targets", "check", "shop", "--json")
        assert before.code == 1
        assert "auth_failed" in before.out
        script = hermod(tmp_path, "targets", "grant", "shop").out
        assert script.count(PASSWORD) == 1
        admin.execute(script.replace(PASSWORD, SECRET).encode())
        admin.execute("create table later (id int)")
    check = hermod(tmp_path, "targets", "check", "shop")
    assert check.code == 0, check.out + check.err
    assert "pg_stat_statements" in check.out
    assert SECRET not in check.out + check.err
    both = "sql=select i.*, (select count(*) from later) from items i"
    assert rows_of(hermod(tmp_path, "tools", "run", "run_readonly_sql", both, "--json")) == [[1, "one", 0]]
    slow = hermod(tmp_path, "tools", "run", "get_slow_queries", "threshold=0", "--json")
    assert any("items" in str(row) for row in rows_of(slow))
    plan = hermod(tmp_path, "tools", "run", "explain_query", "sql=select * from items where name = $1", "--json")
    assert rows_of(plan)


@pytest.mark.timeout(400)
def test_the_printed_script_makes_a_mariadb_account_that_the_tools_can_use(mariadb: MariaLab, tmp_path: Path) -> None:
    account = f"chat_reader_{next(_numbers)}"
    database = asyncio.run(mariadb.create_database())
    write_config(tmp_path, f"mysql://{account}:{SECRET}@127.0.0.1:{mariadb.server.port}/{database}")
    script = hermod(tmp_path, "targets", "grant", "shop").out
    assert script.count(PASSWORD) == 1
    asyncio.run(run_on_mariadb(mariadb, database, script.replace(PASSWORD, SECRET)))
    check = hermod(tmp_path, "targets", "check", "shop")
    assert check.code == 0, check.out + check.err
    rows = rows_of(hermod(tmp_path, "tools", "run", "run_readonly_sql", "sql=select * from items", "--json"))
    assert rows == [[1, "one"]]
    refused = hermod(tmp_path, "tools", "run", "run_readonly_sql", "sql=select * from mysql.user", "--json")
    assert refused.code == 1
    slow = hermod(tmp_path, "tools", "run", "get_slow_queries", "threshold=0", "--json")
    assert slow.code == 0, slow.out + slow.err
    assert SECRET not in check.out + slow.out


async def run_on_mariadb(lab: MariaLab, database: str, script: str) -> None:
    """Run the script's statements one by one, as the client program does, beside a table to read."""
    async with lab.admin(database) as admin:
        await admin.execute("create table items (id int primary key, name text)")
        await admin.execute("insert into items values (1, 'one')")
        plain = re.sub(r"^--.*$", "", script, flags=re.MULTILINE)
        for statement in filter(None, map(str.strip, plain.split(";"))):
            await admin.execute(statement)
        shown = [str(row[0]) for row in await admin.execute(f"show grants for {lab_account(script)}")]
        assert any("MAX_STATEMENT_TIME 60" in line for line in shown)
        assert not any(re.search(r"\b(FILE|SUPER|INSERT|ALL PRIVILEGES)\b", line) for line in shown)


def lab_account(script: str) -> str:
    match = re.search(r"CREATE USER (\S+) ", script)
    assert match is not None
    return match[1]


def test_a_superusers_account_is_refused_by_the_check(postgres: Lab, tmp_path: Path) -> None:
    write_config(tmp_path, postgres.server.url("postgres"))
    done = hermod(tmp_path, "targets", "check", "shop", "--json")
    assert done.code == 1
    error = done.data["error"]
    assert isinstance(error, dict)
    assert error["code"] == "dangerous_role"
    assert postgres.server.password not in done.out + done.err


@pytest.mark.parametrize("words", [("grant",), ("check",)])
def test_a_name_is_needed(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert hermod(tmp_path, "targets", *words).code == 2
