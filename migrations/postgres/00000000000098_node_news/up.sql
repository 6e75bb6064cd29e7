-- News of nodes for one another, for some minutes; `node` is the process that has them.
CREATE TABLE node_news (
    id TEXT NOT NULL PRIMARY KEY,
    node TEXT NOT NULL,
    at TIMESTAMP NOT NULL,
    news TEXT NOT NULL
);
CREATE INDEX node_news_node ON node_news (node, at);
CREATE INDEX node_news_at ON node_news (at);
