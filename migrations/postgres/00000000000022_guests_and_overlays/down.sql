DROP INDEX incidents_open;
DROP INDEX helper_devices_server_id;
ALTER TABLE helper_devices DROP COLUMN server_id;
DROP INDEX pairing_codes_server_id;
ALTER TABLE pairing_codes DROP COLUMN server_id;
DROP TABLE guests;
