-- What a thread remembers beside its messages: a summary of the oldest ones, and whole tool outputs whose middle the
-- history does not hold. And a third kind of step: messages that came while a run worked.

CREATE TABLE summary (
    thread_key    TEXT    PRIMARY KEY REFERENCES thread (thread_key),
    text          TEXT    NOT NULL,
    -- The last message that the summary stands for.
    through_seq   INTEGER NOT NULL,
    tokens_before INTEGER NOT NULL,
    tokens_after  INTEGER NOT NULL,
    -- Who wrote it: 'model', or a person as platform:id.
    author        TEXT    NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT;

CREATE TABLE output (
    thread_key TEXT    NOT NULL REFERENCES thread (thread_key),
    output_id  TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread_key, output_id)
) STRICT;

-- SQLite cannot change a CHECK, so the table is made again (sqlite.org/lang_altertable.html, section 7).
CREATE TABLE step_next (
    run_id   TEXT    NOT NULL REFERENCES run (run_id),
    n        INTEGER NOT NULL,
    key      TEXT    NOT NULL,
    kind     TEXT    NOT NULL CHECK (kind IN ('model', 'tool', 'message')),
    name     TEXT    NOT NULL,
    digest   TEXT    NOT NULL,
    effect   TEXT    NOT NULL,
    state    TEXT    NOT NULL CHECK (state IN ('intent', 'done', 'failed', 'unknown')),
    result   TEXT    NOT NULL,
    begun_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (run_id, n),
    UNIQUE (run_id, key)
) STRICT;
INSERT INTO step_next SELECT run_id, n, key, kind, name, digest, effect, state, result, begun_at, ended_at FROM step;
DROP TABLE step;
ALTER TABLE step_next RENAME TO step;
