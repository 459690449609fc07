-- The first schema. Every instant (a column that ends in _at, since or until) is UTC as integer microseconds since
-- 1970-01-01; every text is UTF-8; JSON is text. Foreign keys stand only where a row must not outlive another.

CREATE TABLE thread (
    id               INTEGER PRIMARY KEY,
    thread_key       TEXT    NOT NULL UNIQUE,
    owner            TEXT,
    lease_until      INTEGER,
    epoch            INTEGER NOT NULL DEFAULT 0,
    last_seq         INTEGER NOT NULL DEFAULT 0,
    last_message_seq INTEGER NOT NULL DEFAULT 0,
    -- Since when there are open items or an unfinished run; NULL without. Kept beside the rows it is derived from so
    -- that looking for work costs the same with ten idle threads and with a million.
    open_since       INTEGER,
    -- When the thread's first undelivered post falls due; NULL without one.
    send_at          INTEGER,
    last_at          INTEGER NOT NULL,
    CHECK ((owner IS NULL) = (lease_until IS NULL))
) STRICT;
CREATE INDEX thread_open ON thread (open_since, id) WHERE open_since IS NOT NULL;
CREATE INDEX thread_send ON thread (send_at, id) WHERE send_at IS NOT NULL;
CREATE INDEX thread_lease ON thread (lease_until) WHERE owner IS NOT NULL;

CREATE TABLE run (
    run_id     TEXT    PRIMARY KEY,
    thread_key TEXT    NOT NULL REFERENCES thread (thread_key),
    agent      TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    error      TEXT    NOT NULL,
    record     TEXT    NOT NULL,
    CHECK ((state IN ('finished', 'error')) = (ended_at IS NOT NULL))
) STRICT;
-- The hard form of "one run per thread at a time".
CREATE UNIQUE INDEX run_unfinished ON run (thread_key) WHERE ended_at IS NULL;
CREATE INDEX run_thread ON run (thread_key, started_at);
CREATE INDEX run_started ON run (started_at);

CREATE TABLE inbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    event_key   TEXT    NOT NULL UNIQUE,
    thread_key  TEXT    NOT NULL REFERENCES thread (thread_key),
    seq         INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    payload     TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('open', 'taken', 'done', 'refused')),
    run_id      TEXT,
    UNIQUE (thread_key, seq)
) STRICT;
CREATE INDEX inbox_open ON inbox (thread_key, seq) WHERE state = 'open';
CREATE INDEX inbox_run ON inbox (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE step (
    run_id   TEXT    NOT NULL REFERENCES run (run_id),
    n        INTEGER NOT NULL,
    key      TEXT    NOT NULL,
    kind     TEXT    NOT NULL CHECK (kind IN ('model', 'tool')),
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

CREATE TABLE message (
    thread_key TEXT    NOT NULL REFERENCES thread (thread_key),
    seq        INTEGER NOT NULL,
    run_id     TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    tokens     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread_key, seq)
) STRICT;

CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT    NOT NULL UNIQUE,
    thread_key TEXT    NOT NULL REFERENCES thread (thread_key),
    run_id     TEXT,
    body       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('pending', 'sending', 'delivered', 'failed')),
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_at    INTEGER NOT NULL,
    remote_id  TEXT,
    reason     TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX outbox_thread ON outbox (thread_key, id);
CREATE INDEX outbox_waiting ON outbox (thread_key, id) WHERE state IN ('pending', 'sending');

CREATE TABLE usage (
    id            INTEGER PRIMARY KEY,
    run_id        TEXT    NOT NULL,
    thread_key    TEXT    NOT NULL,
    author        TEXT    NOT NULL,
    provider      TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    requests      INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_usd      REAL,
    at            INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_at ON usage (at);

-- Append-only. hash is the SHA-256 of the line as canonical JSON, prev_hash included (bot/storage/sqlite_ledger.py).
CREATE TABLE audit (
    seq        INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    thread_key TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    detail     TEXT    NOT NULL,
    prev_hash  TEXT    NOT NULL,
    hash       TEXT    NOT NULL
) STRICT;

CREATE TABLE snapshot (
    id       INTEGER PRIMARY KEY,
    target   TEXT    NOT NULL,
    taken_at INTEGER NOT NULL,
    payload  TEXT    NOT NULL
) STRICT;
CREATE INDEX snapshot_target ON snapshot (target, taken_at);

-- Places for what comes later; nothing reads or writes them yet.

CREATE TABLE approval (
    id           TEXT    PRIMARY KEY,
    run_id       TEXT    NOT NULL REFERENCES run (run_id),
    step_n       INTEGER NOT NULL,
    requested_of TEXT    NOT NULL,
    args_hash    TEXT    NOT NULL,
    state        TEXT    NOT NULL DEFAULT 'pending',
    decided_by   TEXT,
    decided_at   INTEGER,
    expires_at   INTEGER NOT NULL
) STRICT;

CREATE TABLE schedule (
    id           TEXT    PRIMARY KEY,
    cron         TEXT    NOT NULL,
    tz           TEXT    NOT NULL,
    spec         TEXT    NOT NULL,
    policy       TEXT    NOT NULL,
    enabled      INTEGER NOT NULL DEFAULT 1,
    next_at      INTEGER,
    last_run_key TEXT
) STRICT;

CREATE TABLE schedule_run (
    schedule_id TEXT    NOT NULL REFERENCES schedule (id),
    run_key     TEXT    NOT NULL,
    fired_at    INTEGER NOT NULL,
    run_id      TEXT,
    PRIMARY KEY (schedule_id, run_key)
) STRICT;
