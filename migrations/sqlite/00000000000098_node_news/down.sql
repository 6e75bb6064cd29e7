DROP TABLE node_news;
