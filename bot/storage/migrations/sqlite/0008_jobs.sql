-- Scheduled jobs, what became of their times, and threads that begin below a report. The tables of the first schema
-- for jobs were never written to; they are made anew.

DROP TABLE schedule_run;
DROP TABLE schedule;

CREATE TABLE schedule (
    id         TEXT    PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    origin     TEXT    NOT NULL CHECK (origin IN ('settings', 'chat')),
    place      TEXT    NOT NULL,
    owner      TEXT    NOT NULL,
    owner_name TEXT    NOT NULL,
    spec       TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('active', 'paused')),
    reason     TEXT    NOT NULL,
    next_at    INTEGER,          -- the first time that nobody has decided about
    thread_key TEXT    NOT NULL, -- where it was asked for; empty: nowhere
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    revision   INTEGER NOT NULL CHECK (revision > 0)
) STRICT;
-- Jobs that wait for a later time lie behind those that are due, so that they cost nothing.
CREATE INDEX schedule_due ON schedule (next_at, id) WHERE state = 'active';
CREATE INDEX schedule_place ON schedule (place, name);

CREATE TABLE schedule_run (
    id          INTEGER PRIMARY KEY, -- in the order of deciding
    schedule_id TEXT    NOT NULL REFERENCES schedule (id),
    run_key     TEXT    NOT NULL,
    fired_at    INTEGER NOT NULL,
    thread_key  TEXT    NOT NULL,
    inbox_id    INTEGER,             -- the inbox row that has it carried out; NULL: it was skipped
    UNIQUE (schedule_id, run_key)
) STRICT;
CREATE INDEX schedule_run_newest ON schedule_run (schedule_id, id);

-- Of a firing: its job. Whether an earlier one is not over yet is found without looking at those that are.
ALTER TABLE inbox ADD COLUMN job_id TEXT NOT NULL DEFAULT '';
CREATE INDEX inbox_job ON inbox (job_id) WHERE job_id <> '' AND state IN ('open', 'taken');

-- Changes of a job that a person was shown and has not confirmed: the last one of each person in a thread.
CREATE TABLE proposal (
    thread_key TEXT    NOT NULL,
    author     TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread_key, author)
) STRICT;

-- What follows the first post of a run once it is there.
CREATE TABLE sequel (
    run_id TEXT PRIMARY KEY REFERENCES run (run_id),
    body   TEXT NOT NULL
) STRICT;

-- The thread whose post this one stands below; NULL where people began.
ALTER TABLE thread ADD COLUMN opened_from TEXT;
CREATE INDEX thread_opened ON thread (opened_from) WHERE opened_from IS NOT NULL;
