-- Requests that came with an Idempotency-Key.
CREATE TABLE idempotency_keys (
    -- A hash of the caller and the key.
    id TEXT NOT NULL PRIMARY KEY,
    caller TEXT NOT NULL,
    -- A hash of the method, the path and the body.
    request TEXT NOT NULL,
    -- The answer; of a request under way what it is about to do.
    sealed BYTEA NOT NULL,
    -- NULL: it is answered.
    claimed_until TIMESTAMP,
    created_at TIMESTAMP NOT NULL
);
-- How many a caller has.
CREATE INDEX idempotency_keys_caller ON idempotency_keys (caller);
-- What each minute's purge looks for.
CREATE INDEX idempotency_keys_created_at ON idempotency_keys (created_at);
