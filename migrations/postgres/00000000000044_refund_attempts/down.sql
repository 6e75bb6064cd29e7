DROP TABLE refund_attempts;
