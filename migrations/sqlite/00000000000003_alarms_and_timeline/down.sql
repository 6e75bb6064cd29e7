DROP TABLE timeline;
DROP TABLE alarms;
