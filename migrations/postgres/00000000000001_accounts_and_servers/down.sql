DROP TABLE smart_devices;
DROP TABLE paired_servers;
DROP TABLE openid_nonces;
DROP TABLE sign_in_attempts;
DROP TABLE sessions;
DROP TABLE users;
