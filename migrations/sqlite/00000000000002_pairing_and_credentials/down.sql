ALTER TABLE paired_servers DROP COLUMN key_version;
DROP TABLE push_seen;
DROP TABLE push_credentials;
DROP TABLE encryption_keys;
DROP TABLE helper_devices;
DROP TABLE pairing_codes;
