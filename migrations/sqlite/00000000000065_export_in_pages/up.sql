-- An export reads each list from the last row of the page before: the owner, then what orders the rows.
DROP INDEX alarms_user_id;
CREATE INDEX alarms_of_user ON alarms (user_id, id);
DROP INDEX incident_acks_user_id;
CREATE INDEX incident_acks_of_user ON incident_acks (user_id, incident_id);
DROP INDEX active_days_user_id;
CREATE INDEX active_days_of_user ON active_days (user_id, day);
-- Nearly all rows are of a server.
DROP INDEX timeline_user_id;
CREATE INDEX timeline_of_user ON timeline (user_id, ts, id) WHERE user_id IS NOT NULL;
