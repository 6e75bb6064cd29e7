ALTER TABLE payment_customers DROP COLUMN open_checkout;
