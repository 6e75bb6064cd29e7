DROP INDEX incidents_heard_at;
DROP TABLE write_checks;
