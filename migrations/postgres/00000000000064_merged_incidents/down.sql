DROP TABLE merged_incidents;
