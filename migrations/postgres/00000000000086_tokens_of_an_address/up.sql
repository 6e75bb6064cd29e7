-- Player tokens are bound to the address and port of their row. Those that are stored wait to be sealed again, as if an older
-- key had sealed them; until then they open as they are.
UPDATE paired_servers SET key_version = 0;
