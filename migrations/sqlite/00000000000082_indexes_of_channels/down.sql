DROP INDEX channels_failing_since;
DROP INDEX notices_of_user;
CREATE INDEX notices_user_id ON notices (user_id);
