DROP TABLE wiki_versions;
DROP TABLE wiki_pages;
DROP TABLE store_versions;
