-- The network of the session that asked for the code: an IPv4 address, or the first of an IPv6 /64.
ALTER TABLE pairing_codes ADD COLUMN issued_from TEXT;

-- Devices in other networks that know the code, and wait for its user to confirm them.
CREATE TABLE pairing_requests (
    id TEXT NOT NULL PRIMARY KEY,
    code TEXT NOT NULL REFERENCES pairing_codes (code) ON DELETE CASCADE,
    network TEXT NOT NULL,
    requested_at TIMESTAMP NOT NULL,
    confirmed_at TIMESTAMP
);
CREATE UNIQUE INDEX pairing_requests_code ON pairing_requests (code, network);
