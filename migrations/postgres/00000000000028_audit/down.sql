DROP TABLE audit_head;
DROP TABLE audit;
DROP FUNCTION audit_is_append_only;
