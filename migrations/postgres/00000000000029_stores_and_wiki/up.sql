-- What admins wrote into a store: the newest versions of it. Without any, the store is as the service ships it.
CREATE TABLE store_versions (
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    -- JSON
    data TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    digest TEXT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    -- Platform id
    written_by TEXT NOT NULL,
    PRIMARY KEY (name, version)
);

-- The last version of each page of the wiki that admins wrote, changed or deleted.
CREATE TABLE wiki_pages (
    slug TEXT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    -- JSON: where it stands in the tree; NULL: the page is deleted
    place TEXT,
    -- Of the version, '' for one that deletes
    digest TEXT NOT NULL
);

-- The newest versions of each page.
CREATE TABLE wiki_versions (
    slug TEXT NOT NULL REFERENCES wiki_pages (slug) ON DELETE CASCADE,
    version BIGINT NOT NULL,
    -- JSON
    frontmatter TEXT NOT NULL,
    body TEXT NOT NULL,
    digest TEXT NOT NULL,
    written_at TIMESTAMP NOT NULL,
    -- Platform id
    written_by TEXT NOT NULL,
    PRIMARY KEY (slug, version)
);
