"""The script of an account: names are quoted whatever is in them, and nothing is granted that is not needed."""

from __future__ import annotations

import importlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.grants import PASSWORD, build_grant_script, quote_mysql_database, quote_mysql_text
from bot.tools.targets import Target

NAMES = st.text(max_size=15).map(lambda text: text.encode(errors="ignore").decode().replace("\0", "")).filter(str.strip)


def target_of(engine: str, database: str, user: str = "reader") -> Target:
    return Target(name="shop", engine="postgresql" if engine == "postgresql" else "mysql", user=user, database=database)


@given(NAMES, NAMES, st.lists(NAMES, min_size=1, max_size=3, unique=True))
@settings(max_examples=150, deadline=None)
def test_no_name_leaves_its_quotes_in_the_postgres_script(account: str, database: str, schemas: list[str]) -> None:
    script = build_grant_script(target_of("postgresql", database), account=account, schemas=schemas)
    tree = importlib.import_module("postgast").parse(script)
    kinds = [statement.stmt.WhichOneof("node") for statement in tree.stmts]
    head = ["create_role_stmt", *["alter_role_set_stmt"] * 4, "grant_role_stmt", "grant_stmt"]
    assert kinds == head + ["grant_stmt", "grant_stmt", "alter_default_privileges_stmt"] * len(schemas)
    assert tree.stmts[0].stmt.create_role_stmt.role == account
    assert tree.stmts[6].stmt.grant_stmt.objects[0].string.sval == database
    assert [tree.stmts[7 + 3 * n].stmt.grant_stmt.objects[0].string.sval for n in range(len(schemas))] == schemas


def test_the_postgres_script_gives_rights_to_read_only() -> None:
    script = build_grant_script(target_of("postgresql", "shop"))
    live = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    assert set(re.findall(r"^GRANT (.+?) (?:ON|TO)", live, re.MULTILINE)) == {
        "pg_monitor",
        "CONNECT",
        "USAGE",
        "SELECT",
    }
    assert PASSWORD in live
    assert 'CREATE ROLE "reader" LOGIN' in live
    for setting in ("default_transaction_read_only", "statement_timeout", "lock_timeout", "CONNECTION LIMIT"):
        assert setting in live


@pytest.mark.parametrize("user", ["", "postgres", "root"])
def test_an_administrators_name_is_not_taken_for_the_account(user: str) -> None:
    assert '"hermod"' in build_grant_script(target_of("postgresql", "shop", user))
    assert "'hermod'@'%'" in build_grant_script(target_of("mysql", "shop", user))


def test_the_mysql_script_gives_rights_to_read_only() -> None:
    script = build_grant_script(target_of("mysql", "shop_prod"))
    live = "\n".join(line for line in script.splitlines() if not line.startswith("--"))
    assert re.findall(r"^GRANT (.+?) ON (\S+)", live, re.MULTILINE) == [
        ("SELECT", "performance_schema.*"),
        ("SELECT", "sys.*"),
        ("PROCESS", "*.*"),
        ("SELECT, SHOW VIEW", r"`shop\_prod`.*"),
    ]
    assert "MAX_USER_CONNECTIONS" in live


def test_without_a_database_the_mysql_script_says_which_line_is_missing() -> None:
    assert "-- GRANT SELECT, SHOW VIEW ON `DATABASE`.*" in build_grant_script(target_of("mysql", ""))


@pytest.mark.parametrize(
    ("name", "written"),
    [("shop", "`shop`"), ("a_b%c", r"`a\_b\%c`"), ("a`b", "`a``b`"), ("a\\b", "`a\\\\b`")],
)
def test_a_database_of_mysql_is_no_pattern(name: str, written: str) -> None:
    assert quote_mysql_database(name) == written


@pytest.mark.parametrize(("name", "written"), [("o'neil", "'o''neil'"), ("a\\'b", "`a\\'b`"), ("x", "'x'")])
def test_an_account_of_mysql_stays_in_its_quotes(name: str, written: str) -> None:
    assert quote_mysql_text(name) == written


@pytest.mark.parametrize("database", ["", "a\nDROP DATABASE shop; #"])
def test_no_line_break_in_a_name_ends_a_comment_of_the_mysql_script(database: str) -> None:
    script = build_grant_script(target_of("mysql", database), account="x\nDROP DATABASE shop; #\r\nDROP USER y; #")
    live = re.sub(r"^--.*$", "", script, flags=re.MULTILINE)
    outside = re.sub(r"'(?:[^']|'')*'|`(?:[^`]|``)*`", "", live)
    assert "DROP" in live
    assert "DROP" not in outside


def test_a_file_has_no_accounts() -> None:
    with pytest.raises(ToolFailed) as caught:
        build_grant_script(Target.from_url("f", "sqlite:///x.db"))
    assert caught.value.code == "unsupported"
