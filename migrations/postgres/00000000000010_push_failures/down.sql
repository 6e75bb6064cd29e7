DROP TABLE push_refusals;
ALTER TABLE push_credentials DROP COLUMN staged_uploaded_by;
ALTER TABLE push_credentials DROP COLUMN uploaded_by;
DROP TABLE failed_pushes;
