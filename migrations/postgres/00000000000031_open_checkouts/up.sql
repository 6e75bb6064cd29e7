ALTER TABLE payment_customers ADD COLUMN open_checkout TEXT;
