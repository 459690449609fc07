-- Readings of statement counters: one row for each entry that changed. The readings of before, one text each, are
-- dropped: they cannot be taken apart here, and the next question or minute makes a new beginning.

DROP TABLE snapshot;

CREATE TABLE snapshot (
    id       INTEGER PRIMARY KEY, -- in the order of saving, which is the order in which rows build on each other
    target   TEXT    NOT NULL,
    taken_at INTEGER NOT NULL,
    chain    INTEGER NOT NULL,    -- the whole reading that this one builds on: its id, or this id
    head     TEXT    NOT NULL
) STRICT;
CREATE INDEX snapshot_target ON snapshot (target, taken_at);
CREATE INDEX snapshot_chain ON snapshot (chain);
CREATE INDEX snapshot_taken ON snapshot (taken_at);

CREATE TABLE statement (
    id          INTEGER PRIMARY KEY,
    target      TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    chain       INTEGER NOT NULL, -- the newest whole reading that has it, or whose followers have
    fingerprint TEXT,             -- this and what follows: NULL until the text is known
    sql         TEXT,             -- redacted
    db          TEXT,
    account     TEXT,
    own         INTEGER CHECK (own IN (0, 1)),
    UNIQUE (target, key)
) STRICT;
CREATE INDEX statement_fingerprint ON statement (target, fingerprint);
CREATE INDEX statement_chain ON statement (chain);

CREATE TABLE snapshot_row (
    chain     INTEGER NOT NULL,
    statement INTEGER NOT NULL,
    snapshot  INTEGER NOT NULL,
    numbers   TEXT,               -- NULL: the entry is gone since then
    PRIMARY KEY (chain, statement, snapshot)
) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
    name        TEXT    PRIMARY KEY,
    owner       TEXT    NOT NULL,
    lease_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
