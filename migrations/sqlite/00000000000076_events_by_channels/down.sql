ALTER TABLE deliveries DROP COLUMN urgent;
ALTER TABLE notices DROP COLUMN event;
