DROP TABLE failed_pushes;
