-- When a payment of the subscription was first seen to have failed. NULL: none has, or that was before this column.
ALTER TABLE subscriptions ADD COLUMN past_due_since TIMESTAMP;
