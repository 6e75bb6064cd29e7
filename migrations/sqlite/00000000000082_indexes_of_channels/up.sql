-- Each event that is wanted counts its user's notices of the last hour, and an export reads them by time.
CREATE INDEX notices_of_user ON notices (user_id, opened_at, incident_id);
-- Browsers' channels whose subscription has ended are deleted by their time.
CREATE INDEX channels_failing_since ON channels (failing_since);
-- Last, so that readers do not wait while the others are made.
DROP INDEX notices_user_id;
