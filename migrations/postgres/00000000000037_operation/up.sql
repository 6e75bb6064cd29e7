-- What is written to see that the database takes something: the newest row stays.
CREATE TABLE write_checks (
    checked_at TIMESTAMP NOT NULL PRIMARY KEY,
    filler TEXT NOT NULL
);
-- When the last alarm was delivered.
CREATE INDEX incidents_heard_at ON incidents (heard_at);
