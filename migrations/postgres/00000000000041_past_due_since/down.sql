ALTER TABLE subscriptions DROP COLUMN past_due_since;
