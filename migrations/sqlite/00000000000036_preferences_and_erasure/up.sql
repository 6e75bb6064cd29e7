-- As the user set them; NULL: not set.
ALTER TABLE users ADD COLUMN time_zone TEXT;
ALTER TABLE users ADD COLUMN locale TEXT;

-- Customers of the payment provider whose users erased themselves: what the provider still says of them is about nobody.
CREATE TABLE erased_customers (
    -- SHA-256 of the customer's id, hex
    customer_hash TEXT NOT NULL PRIMARY KEY
);

-- What an erasure looks for.
CREATE INDEX payment_events_customer_id ON payment_events (customer_id);
CREATE INDEX payment_events_user_hint ON payment_events (user_hint);
CREATE INDEX active_days_user_id ON active_days (user_id);
