-- What events have said of the device, as JSON: a restart repeats none.
ALTER TABLE smart_devices ADD COLUMN reported TEXT;
