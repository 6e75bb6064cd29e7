-- Customers of the payment provider whose users erased themselves, and at whom something may still run there.
CREATE TABLE customers_to_end (
    customer_id TEXT NOT NULL PRIMARY KEY,
    attempts INTEGER NOT NULL,
    next_attempt_at TIMESTAMP NOT NULL
);
CREATE INDEX customers_to_end_next_attempt_at ON customers_to_end (next_attempt_at);
