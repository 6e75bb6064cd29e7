DROP TABLE push_registrations;
