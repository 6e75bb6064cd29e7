-- The sections of the state that an overlay may see, by name; NULL: all.
ALTER TABLE pairing_codes ADD COLUMN sections TEXT;
ALTER TABLE helper_devices ADD COLUMN sections TEXT;
