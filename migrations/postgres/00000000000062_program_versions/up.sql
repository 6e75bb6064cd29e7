-- Versions of the program that have brought the schema up to date, each with the newest step it knew then: an older
-- program names the one that is needed.
CREATE TABLE program_versions (
    version TEXT NOT NULL PRIMARY KEY,
    newest_step TEXT NOT NULL
);
