ALTER TABLE smart_devices DROP COLUMN reported;
