DROP TABLE spoken_alarms;
