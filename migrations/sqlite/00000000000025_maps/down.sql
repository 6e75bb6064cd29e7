DROP INDEX paired_servers_at;
DROP TABLE map_pictures;
DROP TABLE maps;
