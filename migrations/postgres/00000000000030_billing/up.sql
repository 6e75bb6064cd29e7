CREATE TABLE payment_customers (
    user_id TEXT NOT NULL PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    customer_id TEXT NOT NULL
);
CREATE UNIQUE INDEX payment_customers_customer_id ON payment_customers (customer_id);

CREATE TABLE subscriptions (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    customer_id TEXT NOT NULL,
    tier TEXT,
    status TEXT NOT NULL,
    price TEXT,
    period_start TIMESTAMP,
    period_end TIMESTAMP,
    cancel_at_period_end BOOLEAN NOT NULL,
    lapsed BOOLEAN NOT NULL,
    started_at TIMESTAMP NOT NULL,
    fetched_at TIMESTAMP NOT NULL,
    version BIGINT NOT NULL
);
CREATE INDEX subscriptions_user_id ON subscriptions (user_id);

CREATE TABLE payment_events (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    subscription_id TEXT,
    customer_id TEXT,
    user_hint TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    received_at TIMESTAMP NOT NULL,
    attempts INTEGER NOT NULL,
    next_attempt_at TIMESTAMP
);
CREATE INDEX payment_events_state ON payment_events (state, received_at);
CREATE INDEX payment_events_next_attempt_at ON payment_events (next_attempt_at);

CREATE TABLE beta_testers (
    platform_id TEXT NOT NULL PRIMARY KEY,
    tier TEXT NOT NULL,
    note TEXT,
    expires_at TIMESTAMP,
    created_at TIMESTAMP NOT NULL
);
