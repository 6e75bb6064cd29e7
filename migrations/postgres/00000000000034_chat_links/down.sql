DROP TABLE chat_link_codes;
DROP TABLE chat_links;
