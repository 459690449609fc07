"""No literal of a statement survives the redaction, however it is quoted or cut off."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.tools.slow_queries.lexer import TokenKind, tokenize
from bot.tools.slow_queries.redact_sql import LONGEST_TEXT, fingerprint_sql, redact_message, redact_sql

SECRET = "Zk7qQ"

CORPUS = [
    # every way to write a text
    f"select * from people where mail = '{SECRET}@example.org'",
    f"select 'it''s {SECRET}', 'x'",
    f"select E'a\\'b {SECRET}', e'\\\\', '{SECRET}'",
    f"select U&'\\0041 {SECRET}' uescape '!', u&'{SECRET}'",
    f"select $${SECRET}$$, $a$ $$ ' {SECRET} $a$, $f1$x$f1$",
    f"select b'0101', X'{SECRET}', n'{SECRET}'",
    f"select 'first'\n  '{SECRET}' as continued",
    f"select E'first'\n  '\\'{SECRET}' as continued",
    f"select '\\', '{SECRET}'",  # means two things, by standard_conforming_strings
    f"select '\\\\' || '{SECRET}' from t",
    f"select 'C:\\new\\{SECRET}\\' || name from t",
    f"select ''''||'{SECRET}'",
    f"select '''{SECRET}'''",
    # comments, nested and unfinished
    f"select 1 -- {SECRET}\n from t",
    f"select 1 /* {SECRET} /* nested */ {SECRET} */ + 2",
    f"select '/*' , '{SECRET}' /* */",
    f"/*! {SECRET} */ select 1",
    f"select 1 /* {SECRET}",
    f"select 1 -- {SECRET}",
    # statements that carry secrets
    f"create role app login password '{SECRET}' valid until '2030-01-01'",
    f"alter user app with encrypted password '{SECRET}'",
    f"alter role app set search_path to {SECRET}, public",
    f"set app.api_key = {SECRET}",
    f"set local app.api_key to '{SECRET}'; select 1",
    f"begin; set session app.token={SECRET}; select 1 from t",
    f"alter system set primary_conninfo = {SECRET}",
    f"create server far foreign data wrapper postgres_fdw options (host '{SECRET}', password '{SECRET}')",
    f"create user mapping for app server far options (add user 'x', password '{SECRET}')",
    f"create subscription s connection 'host=a password={SECRET}' publication p",
    f"copy people from program 'curl -H {SECRET} https://example.org'",
    f"copy people to '/backup/{SECRET}.csv' with (format csv)",
    f"execute find_person('{SECRET}', 3)",
    f"prepare find_person as select * from people where mail = '{SECRET}'",
    f"declare c cursor for select '{SECRET}'",
    f"notify channel, '{SECRET}'",
    f"do $$ begin perform set_config('a', '{SECRET}', true); end $$",
    f"create function f() returns text language sql as $f$ select '{SECRET}' $f$",
    f"comment on table people is '{SECRET}'",
    f"security label on table people is '{SECRET}'",
    f"explain (analyze) select * from people where mail like '%{SECRET}%'",
    f"insert into people values (1, '{SECRET}'), (2, $1)",
    f"select data @> '{{\"k\": \"{SECRET}\"}}'::jsonb, '{{{SECRET}}}'::text[], interval '{SECRET}'",
    f'select "Column 1", \'x\' as "y\'s", \'{SECRET}\' from "T"',
    f"select foo$1$, '{SECRET}' as bar$$, $$ {SECRET} $$",
    f"select $1$x$ {SECRET} $x$",
    # texts that were cut off
    f"select * from people where mail = '{SECRET}",
    f"select * from people where mail = E'\\'{SECRET}",
    f"select $tag$ {SECRET} $ta",
    f"select '{SECRET}' as \"unfinished {SECRET}",
]
LONG_NUMBERS = [
    "select * from cards where pan = 4929071234567",
    "select * from cards where pan in (1, 4929071234567) limit 4929071234567",
    "select -4929071234567.25e+10, .4929071234567, 0x4929071234567, 4929_071_234567",
    "execute pay(4929071234567)",
    "set app.pan = 4929071234567",
    "select a::numeric(4929071234567) from t group by 4929071234567",
    "select 4929071234567abc",
]


@pytest.mark.parametrize("statement", CORPUS)
def test_a_planted_secret_does_not_survive(statement: str) -> None:
    assert SECRET not in redact_sql(statement)


@pytest.mark.parametrize("statement", CORPUS)
def test_a_planted_secret_does_not_survive_wherever_the_text_was_cut_off(statement: str) -> None:
    whole = redact_sql(statement)
    for end in range(len(statement)):
        redacted = redact_sql(statement[:end])
        # A piece of a secret is a secret; three letters of it would already be a leak.
        assert SECRET[:3] not in redacted, statement[:end]
    assert redact_sql(whole) == whole


@pytest.mark.parametrize("statement", LONG_NUMBERS)
def test_numbers_are_data(statement: str) -> None:
    assert "4929" not in redact_sql(statement)


@pytest.mark.parametrize(
    ("statement", "redacted"),
    [
        ("select a, 'x' from t where b = 5 and c = $3", "select a, $4 from t where b = $5 and c = $3"),
        ("select\n  a -- why\nfrom\tt", "select a from t"),
        ("select a::numeric(10, 2), b::varchar(30) from t", "select a::numeric(10, 2), b::varchar(30) from t"),
        ("select a, count(*) from t group by 1 order by 2, 1 limit 7", None),
        ('select "Größe" from "T"', 'select "Größe" from "T"'),
        ("select t1.a2 from schema3.t1", "select t1.a2 from schema3.t1"),
        ("select a[1] from t", "select a[$1] from t"),
        ("", ""),
    ],
)
def test_names_sizes_and_positions_stay_and_the_rest_can_still_be_planned(statement: str, redacted: str | None) -> None:
    if redacted is None:
        redacted = "select a, count(*) from t group by 1 order by 2, 1 limit $1"
    assert redact_sql(statement) == redacted


@given(st.text(max_size=300))
@example("$$")
@example("'\\'")
@example("e'")
def test_the_lexer_reads_any_text_whole_and_redacting_twice_changes_nothing(text: str) -> None:
    assert "".join(token.text for token in tokenize(text)) == text
    assert "".join(token.text for token in tokenize(text, plain_backslash=True)) == text
    once = redact_sql(text)
    assert redact_sql(once) == once
    assert len(once) <= LONGEST_TEXT


@st.composite
def statements(draw: st.DrawFn) -> str:
    """Statements made of pieces that hold the secret in some quoting, and of pieces between them."""
    inner = draw(st.text(alphabet="ab '\"$\\-/*\n;(),%é", max_size=12))
    content = f"{inner}{SECRET}{inner[::-1]}"
    doubled = content.replace("'", "''")
    quoted = draw(
        st.sampled_from(
            [
                "'" + doubled + "'",
                "E'" + doubled.replace("\\", "\\\\") + "'",
                "U&'" + doubled + "'",
                f"$q9${content.replace('$', '')}$q9$",
                "/*" + content.replace("*", "").replace("/", "") + "*/",
                "--" + content.replace("\n", " ") + "\n",
            ]
        )
    )
    before = draw(st.sampled_from(["select ", "select a, 'x', ", 'where "b\'c" = ', "select $1, E'\\'', ", "values ("]))
    after = draw(st.sampled_from(["", " from t", ", 'y')", " -- end", " /* end */ and c = $2"]))
    return before + quoted + after


@given(statements())
def test_a_secret_in_any_quoting_beside_anything_does_not_survive(statement: str) -> None:
    assert SECRET not in redact_sql(statement)


def test_a_long_text_is_cut_and_its_end_is_not_looked_at_as_sql() -> None:
    assert redact_sql("select a" + ", a" * 5000).endswith("<cut>")
    assert SECRET not in redact_sql("select 1 " + " " * 300_000 + f"'{SECRET}'")


@pytest.mark.parametrize(
    "other",
    [
        "SELECT * FROM t WHERE a IN ($1, $2) AND b = $3",
        "select *\nfrom t /* x */ where a in ('x', 'y', 'z') and b = 17;",
        "select * from t where a in ($1 /*, ... */) and b = $2",
    ],
)
def test_the_fingerprint_is_of_the_shape(other: str) -> None:
    assert fingerprint_sql(other) == fingerprint_sql("select * from t where a in (1) and b = 2")
    assert fingerprint_sql(other) != fingerprint_sql("select * from t where a in (1) and c = 2")
    assert fingerprint_sql('select "A" from t') != fingerprint_sql('select "a" from t')


def test_an_error_message_keeps_names_of_the_statement_and_no_values() -> None:
    sql = f"select no_col from orders where id = '{SECRET}'"
    assert redact_message('column "no_col" does not exist', sql) == 'column "no_col" does not exist'
    assert SECRET not in redact_message(f'invalid input syntax for type bigint: "{SECRET}"', sql)
    assert SECRET not in redact_message(f"ungültige Eingabe: »x« „{SECRET}“ «{SECRET}» '{SECRET}'", sql)


def test_tokens_say_what_they_are() -> None:
    kinds = [token.kind for token in tokenize("a $1 'b' 2 \"c\" ; -- d")]
    assert [kind for kind in kinds if kind is not TokenKind.SPACE] == [
        TokenKind.WORD,
        TokenKind.PARAMETER,
        TokenKind.STRING,
        TokenKind.NUMBER,
        TokenKind.QUOTED_NAME,
        TokenKind.SYMBOL,
        TokenKind.COMMENT,
    ]
