DROP INDEX active_days_user_id;
DROP INDEX payment_events_user_hint;
DROP INDEX payment_events_customer_id;
DROP TABLE erased_customers;
ALTER TABLE users DROP COLUMN locale;
ALTER TABLE users DROP COLUMN time_zone;
