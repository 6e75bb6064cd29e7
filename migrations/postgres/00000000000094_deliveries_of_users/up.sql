-- The export of what is stored about a user reads their deliveries page by page.
CREATE INDEX deliveries_user_id ON deliveries (user_id, id);
