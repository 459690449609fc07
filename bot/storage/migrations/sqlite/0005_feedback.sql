-- What people thought of an answer: one opinion a person and run, the newest counts. And finding a person's usage.

CREATE TABLE feedback (
    run_id     TEXT    NOT NULL REFERENCES run (run_id),
    author     TEXT    NOT NULL,
    thread_key TEXT    NOT NULL REFERENCES thread (thread_key),
    value      TEXT    NOT NULL CHECK (value IN ('up', 'down')),
    at         INTEGER NOT NULL,
    PRIMARY KEY (run_id, author)
) STRICT;
CREATE INDEX feedback_at ON feedback (at);

CREATE INDEX usage_author ON usage (author, at);
