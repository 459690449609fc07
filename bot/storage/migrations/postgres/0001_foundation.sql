-- The schema as SQLite has it after its migration 0008. Every instant (a column that ends in _at, since or until) is UTC
-- as microseconds since 1970-01-01; JSON is text. Keys are compared byte by byte (COLLATE "C"), as SQLite does, so that
-- a range of keys is the keys with a prefix. Foreign keys stand only where a row must not outlive another.

CREATE TABLE thread (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_key       text   COLLATE "C" NOT NULL UNIQUE,
    owner            text   COLLATE "C",
    lease_until      bigint,
    epoch            bigint NOT NULL DEFAULT 0,
    last_seq         bigint NOT NULL DEFAULT 0,
    last_message_seq bigint NOT NULL DEFAULT 0,
    -- Since when there are open items or an unfinished run; NULL without. Kept beside the rows it is derived from so
    -- that looking for work costs the same with ten idle threads and with a million.
    open_since       bigint,
    -- When the thread's first undelivered post falls due; NULL without one.
    send_at          bigint,
    last_at          bigint NOT NULL,
    -- How often reading what was said before Hermod came may still be tried; 0 when it was read, or there is nothing.
    past_left        bigint NOT NULL DEFAULT 0,
    -- The thread whose post this one stands below; NULL where people began.
    opened_from      text   COLLATE "C",
    CHECK ((owner IS NULL) = (lease_until IS NULL))
);
CREATE INDEX thread_open ON thread (open_since, id) WHERE open_since IS NOT NULL;
CREATE INDEX thread_send ON thread (send_at, id) WHERE send_at IS NOT NULL;
CREATE INDEX thread_lease ON thread (lease_until) WHERE owner IS NOT NULL;
CREATE INDEX thread_last ON thread (last_at);
CREATE INDEX thread_opened ON thread (opened_from) WHERE opened_from IS NOT NULL;

CREATE TABLE run (
    rowid      bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- the order of creation, as SQLite numbers rows by itself
    run_id     text   COLLATE "C" PRIMARY KEY,
    thread_key text   COLLATE "C" NOT NULL REFERENCES thread (thread_key),
    agent      text   NOT NULL,
    state      text   NOT NULL,
    attempt    bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at   bigint,
    error      text   NOT NULL,
    record     text   NOT NULL,
    CHECK ((state IN ('finished', 'error')) = (ended_at IS NOT NULL))
);
-- The hard form of "one run per thread at a time".
CREATE UNIQUE INDEX run_unfinished ON run (thread_key) WHERE ended_at IS NULL;
CREATE INDEX run_thread ON run (thread_key, started_at);
CREATE INDEX run_started ON run (started_at);

CREATE TABLE inbox (
    id          bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_key   text    COLLATE "C" NOT NULL UNIQUE,
    thread_key  text    COLLATE "C" NOT NULL REFERENCES thread (thread_key),
    seq         bigint  NOT NULL,
    kind        text    NOT NULL,
    payload     text    NOT NULL,
    received_at bigint  NOT NULL,
    state       text    NOT NULL CHECK (state IN ('open', 'taken', 'done', 'refused')),
    run_id      text    COLLATE "C",
    -- The platform's id of a message, and whether it carries the sign that it waits.
    said_id     text    COLLATE "C" NOT NULL DEFAULT '',
    signed      boolean NOT NULL DEFAULT false,
    job_id      text    COLLATE "C" NOT NULL DEFAULT '', -- of a firing: its job
    UNIQUE (thread_key, seq)
);
CREATE INDEX inbox_open ON inbox (thread_key, seq) WHERE state = 'open';
CREATE INDEX inbox_run ON inbox (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX inbox_said ON inbox (thread_key, said_id) WHERE said_id <> '';
-- Whether an earlier firing of a job is not over yet is found without looking at those that are.
CREATE INDEX inbox_job ON inbox (job_id) WHERE job_id <> '' AND state IN ('open', 'taken');

CREATE TABLE step (
    run_id   text   COLLATE "C" NOT NULL REFERENCES run (run_id),
    n        bigint NOT NULL,
    key      text   COLLATE "C" NOT NULL,
    kind     text   NOT NULL CHECK (kind IN ('model', 'tool', 'message')),
    name     text   NOT NULL,
    digest   text   NOT NULL,
    effect   text   NOT NULL,
    state    text   NOT NULL CHECK (state IN ('intent', 'done', 'failed', 'unknown')),
    result   text   NOT NULL,
    begun_at bigint NOT NULL,
    ended_at bigint,
    PRIMARY KEY (run_id, n),
    UNIQUE (run_id, key)
);

CREATE TABLE message (
    thread_key text   COLLATE "C" NOT NULL REFERENCES thread (thread_key),
    seq        bigint NOT NULL,
    run_id     text   COLLATE "C" NOT NULL,
    role       text   NOT NULL,
    body       text   NOT NULL,
    tokens     bigint NOT NULL,
    created_at bigint NOT NULL,
    said_id    text   COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (thread_key, seq)
);
CREATE INDEX message_said ON message (thread_key, said_id) WHERE said_id <> '';

-- Messages that were deleted on the platform, so that one which arrives later, or is just being answered, stays out.
CREATE TABLE erased (
    thread_key text   COLLATE "C" NOT NULL REFERENCES thread (thread_key),
    said_id    text   COLLATE "C" NOT NULL,
    erased_at  bigint NOT NULL,
    PRIMARY KEY (thread_key, said_id)
);

-- What is visible of an answer that is still written; whoever takes a dead process's run over removes it.
CREATE TABLE draft (
    run_id     text   COLLATE "C" PRIMARY KEY REFERENCES run (run_id),
    thread_key text   COLLATE "C" NOT NULL REFERENCES thread (thread_key),
    remote_id  text   NOT NULL,
    shown_at   bigint NOT NULL
);

CREATE TABLE outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key        text   COLLATE "C" NOT NULL UNIQUE,
    thread_key text   COLLATE "C" NOT NULL REFERENCES thread (thread_key),
    run_id     text   COLLATE "C",
    body       text   NOT NULL,
    created_at bigint NOT NULL,
    state      text   NOT NULL CHECK (state IN ('pending', 'sending', 'delivered', 'failed')),
    attempts   bigint NOT NULL DEFAULT 0,
    next_at    bigint NOT NULL,
    remote_id  text,
    reason     text   NOT NULL DEFAULT ''
);
CREATE INDEX outbox_thread ON outbox (thread_key, id);
CREATE INDEX outbox_waiting ON outbox (thread_key, id) WHERE state IN ('pending', 'sending');

-- What a thread remembers beside its messages: a summary of the oldest ones, and whole tool outputs whose middle the
-- history does not hold.

CREATE TABLE summary (
    thread_key    text   COLLATE "C" PRIMARY KEY REFERENCES thread (thread_key),
    text          text   NOT NULL,
    -- The last message that the summary stands for.
    through_seq   bigint NOT NULL,
    tokens_before bigint NOT NULL,
    tokens_after  bigint NOT NULL,
    -- Who wrote it: 'model', or a person as platform:id.
    author        text   NOT NULL,
    updated_at    bigint NOT NULL
);

CREATE TABLE output (
    thread_key text   COLLATE "C" NOT NULL REFERENCES thread (thread_key),
    output_id  text   COLLATE "C" NOT NULL,
    text       text   NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (thread_key, output_id)
);

CREATE TABLE usage (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id              text   COLLATE "C" NOT NULL,
    thread_key          text   COLLATE "C" NOT NULL,
    author              text   COLLATE "C" NOT NULL,
    provider            text   NOT NULL,
    model               text   NOT NULL,
    requests            bigint NOT NULL,
    input_tokens        bigint NOT NULL,
    output_tokens       bigint NOT NULL,
    cost_usd            double precision,
    at                  bigint NOT NULL,
    -- What a provider's own cache had to do with it: input tokens that it served, and that it took in at another price.
    cached_input_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens  bigint NOT NULL DEFAULT 0
);
CREATE INDEX usage_at ON usage (at);
CREATE INDEX usage_author ON usage (author, at);

-- What people thought of an answer: one opinion a person and run, the newest counts.
CREATE TABLE feedback (
    run_id     text   COLLATE "C" NOT NULL REFERENCES run (run_id),
    author     text   COLLATE "C" NOT NULL,
    thread_key text   COLLATE "C" NOT NULL REFERENCES thread (thread_key),
    value      text   NOT NULL CHECK (value IN ('up', 'down')),
    at         bigint NOT NULL,
    PRIMARY KEY (run_id, author)
);
CREATE INDEX feedback_at ON feedback (at);

-- Append-only. hash is the SHA-256 of the line as canonical JSON, prev_hash included (bot/storage/postgres_ledger.py).
CREATE TABLE audit (
    seq        bigint PRIMARY KEY,
    at         bigint NOT NULL,
    actor      text   NOT NULL,
    action     text   NOT NULL,
    thread_key text   NOT NULL,
    run_id     text   NOT NULL,
    detail     text   NOT NULL,
    prev_hash  text   NOT NULL,
    hash       text   NOT NULL
);

-- A place for what comes later; nothing reads or writes it yet.
CREATE TABLE approval (
    id           text   COLLATE "C" PRIMARY KEY,
    run_id       text   COLLATE "C" NOT NULL REFERENCES run (run_id),
    step_n       bigint NOT NULL,
    requested_of text   NOT NULL,
    args_hash    text   NOT NULL,
    state        text   NOT NULL DEFAULT 'pending',
    decided_by   text,
    decided_at   bigint,
    expires_at   bigint NOT NULL
);

-- The workspaces where Hermod is installed, with their tokens encrypted; and the states of installations that were
-- redeemed, so that none is redeemed twice.

CREATE TABLE installation (
    platform        text    COLLATE "C" NOT NULL,
    workspace       text    COLLATE "C" NOT NULL, -- the team; of an installation in a whole organisation the organisation
    name            text    NOT NULL,
    enterprise      text    NOT NULL DEFAULT '',
    org_wide        boolean NOT NULL DEFAULT false,
    app             text    NOT NULL DEFAULT '',
    bot_user        text    NOT NULL,
    bot             text    NOT NULL,
    scopes          text    NOT NULL, -- as granted, sorted, with commas between
    installer       text    NOT NULL DEFAULT '',
    token           text    NOT NULL, -- encrypted; empty once the workspace removed Hermod
    installed_at    bigint  NOT NULL,
    revision        bigint  NOT NULL CHECK (revision > 0), -- grows with each installation and removal
    removed_at      bigint,
    removed_because text    NOT NULL DEFAULT '',
    PRIMARY KEY (platform, workspace),
    CHECK ((removed_at IS NULL) = (token <> ''))
);

CREATE TABLE used_nonce (
    nonce      text   COLLATE "C" PRIMARY KEY,
    expires_at bigint NOT NULL
);
CREATE INDEX used_nonce_expires ON used_nonce (expires_at);

-- Readings of statement counters: one row for each entry that changed.

CREATE TABLE snapshot (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of saving, in which rows build on each other
    target   text   COLLATE "C" NOT NULL,
    taken_at bigint NOT NULL,
    chain    bigint NOT NULL, -- the whole reading that this one builds on: its id, or this id
    head     text   NOT NULL
);
CREATE INDEX snapshot_target ON snapshot (target, taken_at);
CREATE INDEX snapshot_saved ON snapshot (target, id);
CREATE INDEX snapshot_chain ON snapshot (chain);
CREATE INDEX snapshot_taken ON snapshot (taken_at);

CREATE TABLE statement (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    target      text   COLLATE "C" NOT NULL,
    key         text   COLLATE "C" NOT NULL,
    chain       bigint NOT NULL, -- the newest whole reading that has it, or whose followers have
    fingerprint text   COLLATE "C", -- this and what follows: NULL until the text is known
    sql         text,               -- redacted
    db          text,
    account     text,
    own         boolean,
    UNIQUE (target, key)
);
CREATE INDEX statement_fingerprint ON statement (target, fingerprint);
CREATE INDEX statement_chain ON statement (chain);

CREATE TABLE snapshot_row (
    chain     bigint NOT NULL,
    statement bigint NOT NULL,
    snapshot  bigint NOT NULL,
    numbers   text, -- NULL: the entry is gone since then
    PRIMARY KEY (chain, statement, snapshot)
);

CREATE TABLE lease (
    name        text   COLLATE "C" PRIMARY KEY,
    owner       text   COLLATE "C" NOT NULL,
    lease_until bigint NOT NULL
);

-- Scheduled jobs, and what became of their times.

CREATE TABLE schedule (
    id         text   COLLATE "C" PRIMARY KEY,
    name       text   COLLATE "C" NOT NULL UNIQUE,
    origin     text   NOT NULL CHECK (origin IN ('settings', 'chat')),
    place      text   COLLATE "C" NOT NULL,
    owner      text   NOT NULL,
    owner_name text   NOT NULL,
    spec       text   NOT NULL,
    state      text   NOT NULL CHECK (state IN ('active', 'paused')),
    reason     text   NOT NULL,
    next_at    bigint,          -- the first time that nobody has decided about
    thread_key text   NOT NULL, -- where it was asked for; empty: nowhere
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    revision   bigint NOT NULL CHECK (revision > 0)
);
-- Jobs that wait for a later time lie behind those that are due, so that they cost nothing.
CREATE INDEX schedule_due ON schedule (next_at, id) WHERE state = 'active';
CREATE INDEX schedule_place ON schedule (place, name);

CREATE TABLE schedule_run (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of deciding
    schedule_id text   COLLATE "C" NOT NULL REFERENCES schedule (id),
    run_key     text   COLLATE "C" NOT NULL,
    fired_at    bigint NOT NULL,
    thread_key  text   NOT NULL,
    inbox_id    bigint, -- the inbox row that has it carried out; NULL: it was skipped
    UNIQUE (schedule_id, run_key)
);
CREATE INDEX schedule_run_newest ON schedule_run (schedule_id, id);

-- Changes of a job that a person was shown and has not confirmed: the last one of each person in a thread.
CREATE TABLE proposal (
    thread_key text   COLLATE "C" NOT NULL,
    author     text   COLLATE "C" NOT NULL,
    body       text   NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (thread_key, author)
);

-- What follows the first post of a run once it is there.
CREATE TABLE sequel (
    run_id text COLLATE "C" PRIMARY KEY REFERENCES run (run_id),
    body   text NOT NULL
);
