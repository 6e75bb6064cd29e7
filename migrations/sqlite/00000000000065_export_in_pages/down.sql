DROP INDEX timeline_of_user;
CREATE INDEX timeline_user_id ON timeline (user_id);
DROP INDEX active_days_of_user;
CREATE INDEX active_days_user_id ON active_days (user_id);
DROP INDEX incident_acks_of_user;
CREATE INDEX incident_acks_user_id ON incident_acks (user_id);
DROP INDEX alarms_of_user;
CREATE INDEX alarms_user_id ON alarms (user_id);
