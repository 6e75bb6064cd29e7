DROP INDEX notices_of_user;
CREATE INDEX notices_user_id ON notices (user_id);
