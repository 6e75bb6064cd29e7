-- An index alone counts entries only where vacuum has been; by default it comes after a fifth of the log is new.
ALTER TABLE audit SET (autovacuum_vacuum_insert_scale_factor = 0.02);
