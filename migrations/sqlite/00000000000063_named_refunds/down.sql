ALTER TABLE refund_attempts DROP COLUMN named_at;
