-- What admins say of items: of those of the embedded catalogue, and of further ones.
CREATE TABLE edited_items (
    id INTEGER NOT NULL PRIMARY KEY,
    shortname TEXT NOT NULL,
    name TEXT NOT NULL,
    category TEXT NOT NULL,
    stack_size INTEGER,
    -- Name of an image
    icon TEXT,
    updated_at TIMESTAMP NOT NULL
);
CREATE UNIQUE INDEX edited_items_shortname ON edited_items (shortname);

-- One row: rises with every change of edited_items, so that other processes notice.
CREATE TABLE edited_items_version (
    id INTEGER NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);
INSERT INTO edited_items_version (id, version) VALUES (1, 0);

CREATE TABLE conveyor_rows (
    shortname TEXT NOT NULL PRIMARY KEY,
    item_id INTEGER NOT NULL,
    category TEXT NOT NULL,
    updated_at TIMESTAMP NOT NULL
);

-- Uploaded images, which themselves are in a directory or in S3.
CREATE TABLE images (
    name TEXT NOT NULL PRIMARY KEY,
    bytes BIGINT NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    uploaded_at TIMESTAMP NOT NULL,
    -- NULL while something uses it
    unused_since TIMESTAMP,
    -- It is about to be deleted
    doomed BOOLEAN NOT NULL
);
CREATE INDEX images_unused_since ON images (unused_since);

CREATE TABLE image_uses (
    image TEXT NOT NULL REFERENCES images (name) ON DELETE CASCADE,
    -- 'item:' and an item id, or 'wiki:', a slug, '@' and a version
    used_by TEXT NOT NULL,
    PRIMARY KEY (image, used_by)
);
CREATE INDEX image_uses_used_by ON image_uses (used_by);
