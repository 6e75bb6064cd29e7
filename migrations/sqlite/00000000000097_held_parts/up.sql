-- Parts of the service that one node at a time has, of those that serve from one database. The number rises with each node.
CREATE TABLE held_parts (
    part TEXT NOT NULL PRIMARY KEY,
    node TEXT NOT NULL,
    number BIGINT NOT NULL,
    since TIMESTAMP NOT NULL
);
CREATE INDEX held_parts_node ON held_parts (node, part);
-- What other nodes have changed.
CREATE INDEX paired_servers_updated_at ON paired_servers (updated_at);
