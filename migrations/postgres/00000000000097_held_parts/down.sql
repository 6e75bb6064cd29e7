DROP INDEX paired_servers_updated_at;
DROP TABLE held_parts;
