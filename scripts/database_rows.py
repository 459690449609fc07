"""The rows of docs/database-bug-rows.md, laid out by ``scripts.write_database_rows``: bugs of other database tools."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.chat_rows import ChatRow

ROWS: Sequence[ChatRow] = tuple(
    ChatRow(*row)
    for row in (
        (
            "D01",
            "dbulashev/dasha#258",
            "statements of other roles have no id and a text that says so; reading them as numbers crashed the tool",
        ),
        ("D02", "pganalyze/collector#123", "rows without an id cannot be subtracted from each other, and were"),
        (
            "D03",
            "prometheus-community/postgres_exporter#541",
            "after an upgrade the column of the total time had another name, and nothing was read any more",
        ),
        (
            "D04",
            "lesovsky/pgcenter#98",
            "a new server with an old extension lacked the columns that its version seemed to promise",
        ),
        (
            "D05",
            "coroot/coroot-pg-agent#21",
            "columns of read times have other names on a new server, but not where the extension was left behind",
        ),
        ("D06", "nbari/pgmon#1", "a new column name was used on an older server"),
        (
            "D07",
            "powa-team/powa-archivist#54",
            "statements inside functions and those that called them were one row, with absurd minima and maxima",
        ),
        ("D08", "crystaldba/postgres-mcp#210", "most of the list was a platform's own monitoring in another database"),
        (
            "D09",
            "pgEdge/ai-dba-workbench#481",
            "a view of the whole server was read from two of its databases, and everything counted twice",
        ),
        (
            "D10",
            "NikolayS/pg_ash#87",
            "rows of one statement id by several users were joined; a table of the view's name could stand in for it",
        ),
        (
            "D11",
            "zubkov-andrei/pg_profile#116",
            "a statement was thrown out and came back, and its difference was negative",
        ),
        (
            "D12",
            "ankane/pghero#325 ankane/pghero#358",
            "the tool reset counters that others read; without that a mended query stayed slow for a month",
        ),
        ("D13", "zubkov-andrei/pg_profile#34", "another tool's reset gave wrong values without a word"),
        (
            "D14",
            "crystaldba/postgres-mcp#178",
            "a function in the FROM clause passed the list of permitted ones and read files",
        ),
        (
            "D15",
            "pgadmin-org/pgadmin4#10022",
            "a COMMIT inside the text left the READ ONLY transaction, and the rest wrote",
        ),
        (
            "D16",
            "pgEdge/pgedge-postgres-mcp#196",
            "a comment in front brought the text to the protocol that takes several statements, and READ WRITE through",
        ),
        ("D17", "ericzakariasson/pg-mcp-server#3", "an INSERT behind a comment was taken for reading"),
        ("D18", "bytebase/dbhub#80", "an honest SELECT behind a comment was refused"),
        ("D19", "bytebase/dbhub#284", "a comment that MySQL executes dropped a table"),
        (
            "D20",
            "awslabs/mcp#4575",
            "functions that reset statistics or write to the log passed, since SELECT called them",
        ),
        ("D21", "AgamiAI/agami-core#395", "functions that lock, sleep or notify passed"),
        ("D22", "sosedoff/pgweb#859", "sessions could be ended in the mode that was to be read-only"),
        ("D23", "ankane/pghero#439", "the error text of an EXPLAIN showed data"),
        (
            "D24",
            "dbeaver/dbeaver#37956",
            "a generic plan of a statement with parameters failed on the protocol that wants their values",
        ),
        ("D25", "DataDog/integrations-core#13434", "a statement from the statistics had parameters that nobody gave"),
        (
            "D26",
            "powa-team/powa-web#216",
            "a normalised statement could not be planned, since a parameter stood where a type has to be known",
        ),
        ("D27", "darold/pgbadger#879", "a row of the CSV log got the duration of the one before it"),
        ("D28", "darold/pgbadger#79", "a duration in the CSV log was paired with another session's statement"),
        (
            "D29",
            "darold/pgbadger#848 darold/pgbadger#492",
            "a plan and a duration in the log counted one execution twice",
        ),
        ("D30", "darold/pgbadger#261", "one stray quote ended the reading of a CSV log after an eighth of it"),
        ("D31", "darold/pgbadger#449", "reading went on inside an entry of several lines"),
        ("D32", "darold/pgbadger#643", "memory ran out, and the report was empty while all seemed well"),
        (
            "D33",
            "darold/pgbadger#662 darold/pgbadger#713",
            "times of a log in UTC were shifted by the reader's zone; a beginning with a zone was refused",
        ),
        ("D34", "percona/percona-toolkit#90", "one form of the time in a slow log made a filter by time find nothing"),
        (
            "D35",
            "devops-works/slowql#8",
            "a time with two digits for the year and a blank before the hour was not read",
        ),
        ("D36", "percona/percona-agent#165", "the row without a digest, of a full table of digests, ended the agent"),
        ("D37", "ankane/pghero#258 dalibo/pg_activity#68", "parallel workers were shown as queries of their own"),
        ("D38", "Tracer-Cloud/opensre#2934", "sessions that wait beside each other were said to block each other"),
        ("D39", "OPMDG/check_pgactivity#420", "primary keys were listed as unused indexes"),
        (
            "D40",
            "timescale/timescaledb#5934",
            "executions that failed or ran into a time limit are in no statistics, and nobody said so",
        ),
    )
)
