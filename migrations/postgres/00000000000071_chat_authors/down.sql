ALTER TABLE chat_lines DROP COLUMN author_id;
