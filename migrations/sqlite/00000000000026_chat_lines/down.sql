DROP TABLE chat_lines;
