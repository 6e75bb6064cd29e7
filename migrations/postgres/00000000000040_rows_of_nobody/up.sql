-- Erasures that met another write could leave rows of a user who is gone, despite the foreign key; a dump with such rows
-- cannot be restored.
DO $$
DECLARE
    reference record;
BEGIN
    FOR reference IN
        SELECT c.conrelid::regclass AS child, a.attname AS field, c.confdeltype = 'n' AS is_kept
        FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
        WHERE c.contype = 'f' AND c.confrelid = 'users'::regclass
    LOOP
        EXECUTE format(
            CASE WHEN reference.is_kept THEN 'UPDATE %1$s SET %2$I = NULL' ELSE 'DELETE FROM %1$s' END
                || ' WHERE %2$I NOT IN (SELECT id FROM users)',
            reference.child, reference.field);
    END LOOP;
END $$;
