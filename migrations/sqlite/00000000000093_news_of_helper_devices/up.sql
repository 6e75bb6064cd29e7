-- When the user said that they know of the device, and when their channels tell them of it; null: not yet, and never.
ALTER TABLE helper_devices ADD COLUMN seen_at TIMESTAMP;
ALTER TABLE helper_devices ADD COLUMN warn_at TIMESTAMP;
UPDATE helper_devices SET seen_at = created_at;
CREATE INDEX helper_devices_warn_at ON helper_devices (warn_at);
