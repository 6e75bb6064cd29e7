DROP INDEX channels_target_hash;
