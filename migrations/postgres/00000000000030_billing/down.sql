DROP TABLE beta_testers;
DROP TABLE payment_events;
DROP TABLE subscriptions;
DROP TABLE payment_customers;
