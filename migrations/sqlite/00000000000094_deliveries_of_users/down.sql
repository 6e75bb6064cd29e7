DROP INDEX deliveries_user_id;
