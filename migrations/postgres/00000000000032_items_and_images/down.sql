DROP TABLE image_uses;
DROP TABLE images;
DROP TABLE conveyor_rows;
DROP TABLE edited_items_version;
DROP TABLE edited_items;
