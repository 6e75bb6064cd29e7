DROP TABLE former_subscribers;
