-- Everything that the service stores. `row` numbers are internal, give the order and are never given out twice;
-- ids on the wire are UUIDs. Times are milliseconds since the epoch. JSON is text. Every look-up is by account.
-- A removed device keeps its row (`removed_at`): its readings and commands still point at it.

CREATE TABLE accounts (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    variant TEXT,          -- how its requests are answered, as JSON; NULL: as docs/protocol.md says
    quota INTEGER,         -- requests of each key in a minute; NULL: the service's
    created_at INTEGER NOT NULL
);

CREATE TABLE api_keys (
    api_key TEXT PRIMARY KEY,
    account INTEGER NOT NULL,
    secret_hash BLOB NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE users (
    account INTEGER NOT NULL,
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account, id)
) WITHOUT ROWID;

CREATE TABLE products (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    definition TEXT NOT NULL,
    dashboard TEXT,
    dashboard_updated_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE INDEX products_of_account ON products (account, row);

CREATE TABLE devices (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    product_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    device_name TEXT NOT NULL,
    device_identifier TEXT NOT NULL,
    qr_info TEXT,
    firmware_version TEXT,
    metadata TEXT,
    last_seen_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    removed_at INTEGER
);
CREATE INDEX devices_of_account ON devices (account, row) WHERE removed_at IS NULL;
CREATE INDEX devices_of_product ON devices (product_id, row) WHERE removed_at IS NULL;
CREATE INDEX devices_of_user ON devices (account, user_id, row) WHERE removed_at IS NULL;
CREATE UNIQUE INDEX devices_by_identifier ON devices (account, product_id, device_identifier) WHERE removed_at IS NULL;

CREATE TABLE commands (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    device INTEGER NOT NULL,
    command_payload TEXT NOT NULL,
    status TEXT NOT NULL,
    status_reason TEXT,
    result TEXT,
    created_at INTEGER NOT NULL,
    delivered_at INTEGER,
    completed_at INTEGER,
    expires_at INTEGER NOT NULL
);
CREATE INDEX commands_of_account ON commands (account, row);
CREATE INDEX commands_of_device ON commands (device, row);
CREATE INDEX commands_open ON commands (device, row) WHERE status IN ('queued', 'delivered', 'in_progress');
CREATE INDEX commands_by_end ON commands (expires_at) WHERE status IN ('queued', 'delivered', 'in_progress');
CREATE INDEX commands_by_time ON commands (account, created_at);

CREATE TABLE readings (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    device INTEGER NOT NULL,
    sensor_data TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    received_at INTEGER NOT NULL
);
CREATE INDEX readings_of_device ON readings (device, recorded_at, row);
CREATE INDEX readings_of_account ON readings (account, recorded_at, row);

CREATE TABLE stored_answers (
    account INTEGER NOT NULL,
    idempotency_key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    status INTEGER NOT NULL,
    headers TEXT NOT NULL,
    body BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account, idempotency_key)
) WITHOUT ROWID;
CREATE INDEX stored_answers_by_age ON stored_answers (created_at);

CREATE TABLE reading_keys (
    account INTEGER NOT NULL,
    idempotency_key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (account, idempotency_key)
) WITHOUT ROWID;
CREATE INDEX reading_keys_by_age ON reading_keys (created_at);

CREATE TABLE schemas (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    product_id TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    created_at INTEGER NOT NULL,
    UNIQUE (product_id, name)
);

CREATE TABLE tables (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    product_id TEXT NOT NULL,
    schema_id TEXT NOT NULL,
    table_name TEXT NOT NULL,
    columns TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (product_id, table_name)
);

CREATE TABLE runtime_records (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    product_id TEXT NOT NULL,
    device INTEGER NOT NULL,
    table_name TEXT NOT NULL,
    data_payload TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE INDEX runtime_records_of_account ON runtime_records (account, row);
CREATE INDEX runtime_records_of_table ON runtime_records (product_id, table_name, row);
CREATE INDEX runtime_records_of_device ON runtime_records (device, row);

CREATE TABLE rules (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    product_id TEXT NOT NULL,
    name TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    trigger TEXT NOT NULL,
    actions TEXT NOT NULL,
    last_fired_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE INDEX rules_of_account ON rules (account, row);
CREATE INDEX rules_of_product ON rules (product_id, row);

-- People who sign in; the user of a device (table users) need not be one of them. The account is NULL for a person
-- who is no manufacturer yet.
CREATE TABLE people (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER,
    email TEXT NOT NULL UNIQUE,
    password_hash TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

-- Partner applications. `secret_hash` is NULL for a public one; the account is the one that registered it.
CREATE TABLE partner_clients (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    client_id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    name TEXT NOT NULL,
    secret_hash BLOB,
    redirect_uris TEXT NOT NULL,
    scope TEXT NOT NULL,
    grant_types TEXT NOT NULL,
    description TEXT,
    created_at INTEGER NOT NULL
);

-- What a person opened to a client: all tokens that descend from one sign-in or one code end with it.
CREATE TABLE grants (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    account INTEGER NOT NULL,
    person INTEGER NOT NULL,
    client_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ends_at INTEGER NOT NULL,
    revoked_at INTEGER
);
CREATE INDEX grants_of_client ON grants (client_id);

-- A used code stays as long as its grant: presented again, it ends that grant.
CREATE TABLE authorization_codes (
    code_hash BLOB PRIMARY KEY,
    account INTEGER NOT NULL,
    client_id TEXT NOT NULL,
    person INTEGER NOT NULL,
    redirect_uri TEXT NOT NULL,
    scope TEXT NOT NULL,
    code_challenge TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER,
    grant_row INTEGER
) WITHOUT ROWID;
CREATE INDEX authorization_codes_by_end ON authorization_codes (expires_at);

CREATE TABLE tokens (
    token_hash BLOB PRIMARY KEY,
    account INTEGER NOT NULL,
    grant_row INTEGER NOT NULL,
    kind TEXT NOT NULL,    -- access, refresh
    scope TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at INTEGER       -- rotated or revoked
) WITHOUT ROWID;
CREATE INDEX tokens_of_grant ON tokens (grant_row);
CREATE INDEX tokens_by_end ON tokens (expires_at);
