-- When a refund that was made, and whose admin was not shown that, was named to one who asked for another one of its charge.
ALTER TABLE refund_attempts ADD COLUMN named_at TIMESTAMP;
