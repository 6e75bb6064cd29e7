ALTER TABLE audit RESET (autovacuum_vacuum_insert_scale_factor);
