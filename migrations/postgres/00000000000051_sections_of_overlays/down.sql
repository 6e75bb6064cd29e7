ALTER TABLE helper_devices DROP COLUMN sections;
ALTER TABLE pairing_codes DROP COLUMN sections;
