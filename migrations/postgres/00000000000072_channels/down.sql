DROP TABLE vapid_keys;
DROP TABLE deliveries;
DROP TABLE notices;
DROP TABLE alarm_rules;
DROP TABLE channels;
