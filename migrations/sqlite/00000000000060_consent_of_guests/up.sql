-- Invitations by account are accepted. Those who were put in before stay guests, and can leave.
-- Servers to which a user does not want to be invited.
CREATE TABLE refused_invites (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    server_id TEXT NOT NULL REFERENCES paired_servers (id) ON DELETE CASCADE,
    refused_at TIMESTAMP NOT NULL,
    PRIMARY KEY (user_id, server_id)
);
CREATE INDEX refused_invites_server_id ON refused_invites (server_id);
-- Users whose invitations by account a user does not want to see.
CREATE TABLE blocked_inviters (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    blocked_user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    blocked_at TIMESTAMP NOT NULL,
    PRIMARY KEY (user_id, blocked_user_id)
);
CREATE INDEX blocked_inviters_blocked_user_id ON blocked_inviters (blocked_user_id);
