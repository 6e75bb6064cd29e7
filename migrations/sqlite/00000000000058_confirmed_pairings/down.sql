DROP TABLE pairing_requests;
ALTER TABLE pairing_codes DROP COLUMN issued_from;
