-- The workspaces where Hermod is installed, with their tokens encrypted; and the states of installations that were
-- redeemed, so that none is redeemed twice.

CREATE TABLE installation (
    platform        TEXT    NOT NULL,
    workspace       TEXT    NOT NULL, -- the team; of an installation in a whole organisation the organisation
    name            TEXT    NOT NULL,
    enterprise      TEXT    NOT NULL DEFAULT '',
    org_wide        INTEGER NOT NULL DEFAULT 0 CHECK (org_wide IN (0, 1)),
    app             TEXT    NOT NULL DEFAULT '',
    bot_user        TEXT    NOT NULL,
    bot             TEXT    NOT NULL,
    scopes          TEXT    NOT NULL, -- as granted, sorted, with commas between
    installer       TEXT    NOT NULL DEFAULT '',
    token           TEXT    NOT NULL, -- encrypted; empty once the workspace removed Hermod
    installed_at    INTEGER NOT NULL,
    revision        INTEGER NOT NULL CHECK (revision > 0), -- grows with each installation and removal
    removed_at      INTEGER,
    removed_because TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (platform, workspace),
    CHECK ((removed_at IS NULL) = (token <> ''))
) STRICT;

CREATE TABLE used_nonce (
    nonce      TEXT    PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX used_nonce_expires ON used_nonce (expires_at);
