BEGIN TRANSACTION;
CREATE TABLE boot (boot_id TEXT PRIMARY KEY, low REAL NOT NULL, high REAL NOT NULL, mono REAL NOT NULL) WITHOUT ROWID;
INSERT INTO "boot" VALUES('boot-1',1767224600.0,1767224601.0,1000.0);
CREATE TABLE command (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    handler TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at REAL,
    expires_at REAL,
    status TEXT,
    size_bytes INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    received_mono REAL NOT NULL, received_wall REAL NOT NULL, received_boot TEXT NOT NULL,
    started_mono REAL, started_wall REAL, started_boot TEXT,
    finished_mono REAL, finished_wall REAL, finished_boot TEXT,
    outcome TEXT, result TEXT, error TEXT
, put_aside TEXT);
INSERT INTO "command" VALUES(1,'received','received','ping','{"command":"ping"}',NULL,NULL,NULL,18,0,1000.0,1767225600.0,'boot-1',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "command" VALUES(2,'waits','finished','ping','{}',NULL,NULL,NULL,18,1,1000.0,1767225600.0,'boot-1',1000.0,1767225600.0,'boot-1',1000.0,1767225600.0,'boot-1','succeeded',NULL,NULL,NULL);
INSERT INTO "command" VALUES(3,'over','reported','ping','{"command":"ping"}',NULL,NULL,NULL,18,0,1000.0,1767225600.0,'boot-1',NULL,NULL,NULL,NULL,NULL,NULL,'succeeded',NULL,NULL,NULL);
INSERT INTO "command" VALUES(4,'aside','put_aside','ping','{"command":"ping"}',NULL,NULL,NULL,18,0,1000.0,1767225600.0,'boot-1',NULL,NULL,NULL,NULL,NULL,NULL,'succeeded',NULL,NULL,'405 no such place');
CREATE TABLE gap (reason TEXT PRIMARY KEY, rows INTEGER NOT NULL, from_wall REAL NOT NULL, to_wall REAL NOT NULL)
    WITHOUT ROWID;
INSERT INTO "gap" VALUES('rows',2,1767225600.0,1767225600.0);
CREATE TABLE incident (id INTEGER PRIMARY KEY, wall_s REAL NOT NULL, text TEXT NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('contacted',1);
INSERT INTO "meta" VALUES('set_aside',1);
INSERT INTO "meta" VALUES('store_id','04e85e3f11df439d975d1b33146a2525');
CREATE TABLE open_gap (
    reason TEXT PRIMARY KEY, rows INTEGER NOT NULL,
    since_mono REAL NOT NULL, since_wall REAL NOT NULL, since_boot TEXT NOT NULL,
    until_mono REAL NOT NULL, until_wall REAL NOT NULL, until_boot TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE origin (id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, store_id TEXT NOT NULL);
INSERT INTO "origin" VALUES(1,'boot-1','04e85e3f11df439d975d1b33146a2525');
CREATE TABLE reading (
    key INTEGER PRIMARY KEY, origin INTEGER NOT NULL, mono REAL NOT NULL, wall REAL NOT NULL, body TEXT
, priority INTEGER NOT NULL DEFAULT 1);
INSERT INTO "reading" VALUES(4,1,1000.0,1767225600.0,'{"n":3}',1);
INSERT INTO "reading" VALUES(5,1,1000.0,1767225600.0,'{"n":4}',1);
INSERT INTO "reading" VALUES(6,1,1000.0,1767225600.0,'{"n":5}',1);
INSERT INTO "reading" VALUES(7,1,1000.0,1767225600.0,'{"agent_gap_rows":2,"agent_gap_reason":2,"agent_gap_seconds":0.0}',-1);
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO "schema_version" VALUES(4);
CREATE TABLE set_aside (
    key INTEGER PRIMARY KEY, origin INTEGER NOT NULL, mono REAL NOT NULL, wall REAL NOT NULL, body TEXT NOT NULL,
    reason TEXT NOT NULL
, priority INTEGER NOT NULL DEFAULT 1);
INSERT INTO "set_aside" VALUES(3,1,1000.0,1767225600.0,'{"n":2}','validation_error: no such reading',1);
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "setting" VALUES('interval.board','30');
CREATE INDEX command_open ON command (state, seq) WHERE state IN ('received', 'started', 'finished');
CREATE INDEX command_put_aside ON command (seq) WHERE state = 'put_aside';
COMMIT;
