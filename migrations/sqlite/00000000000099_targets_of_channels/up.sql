-- A browser that is added, or has another subscription, ends the channels with its target, of any account.
CREATE INDEX channels_target_hash ON channels (target_hash);
