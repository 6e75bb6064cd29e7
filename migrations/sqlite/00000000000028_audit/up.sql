CREATE TABLE audit (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id > 0),
    at TIMESTAMP NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    payload TEXT NOT NULL,
    result TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE INDEX audit_at ON audit (at, id);
CREATE INDEX audit_action ON audit (action, at, id);
CREATE INDEX audit_actor ON audit (actor, at, id);
CREATE INDEX audit_target ON audit (target, at, id);

-- The last entry; the one row is also what writers lock.
CREATE TABLE audit_head (
    singleton INTEGER NOT NULL PRIMARY KEY,
    id BIGINT NOT NULL,
    hash TEXT NOT NULL
);
INSERT INTO audit_head (singleton, id, hash) VALUES (1, 0, '');

CREATE TRIGGER audit_not_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER audit_not_deleted BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
