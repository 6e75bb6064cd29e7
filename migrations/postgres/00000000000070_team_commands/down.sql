DROP TABLE day_speeds;
DROP TABLE switch_backs;
DROP TABLE team_timers;
DROP TABLE device_groups;
DROP TABLE team_chat_settings;
