-- What people do to a thread while a run works: they wait, stop it, take messages back; and what they see of it.

-- How often reading what was said before Hermod came may still be tried; 0 when it was read, or there is nothing.
ALTER TABLE thread ADD COLUMN past_left INTEGER NOT NULL DEFAULT 0;

-- The platform's id of a message, and whether it carries the sign that it waits.
ALTER TABLE inbox ADD COLUMN said_id TEXT NOT NULL DEFAULT '';
ALTER TABLE inbox ADD COLUMN signed INTEGER NOT NULL DEFAULT 0;
UPDATE inbox SET said_id = coalesce(json_extract(payload, '$.id'), '')
 WHERE kind = 'message' AND json_valid(payload) AND json_type(payload, '$.id') = 'text';
CREATE INDEX inbox_said ON inbox (thread_key, said_id) WHERE said_id <> '';
ALTER TABLE message ADD COLUMN said_id TEXT NOT NULL DEFAULT '';
CREATE INDEX message_said ON message (thread_key, said_id) WHERE said_id <> '';

-- Messages that were deleted on the platform, so that one which arrives later, or is just being answered, stays out.
CREATE TABLE erased (
    thread_key TEXT    NOT NULL REFERENCES thread (thread_key),
    said_id    TEXT    NOT NULL,
    erased_at  INTEGER NOT NULL,
    PRIMARY KEY (thread_key, said_id)
) STRICT;

-- What is visible of an answer that is still written; whoever takes a dead process's run over removes it.
CREATE TABLE draft (
    run_id     TEXT    PRIMARY KEY REFERENCES run (run_id),
    thread_key TEXT    NOT NULL REFERENCES thread (thread_key),
    remote_id  TEXT    NOT NULL,
    shown_at   INTEGER NOT NULL
) STRICT;
