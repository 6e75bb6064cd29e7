DROP TABLE shop_watches;
DROP TABLE shop_history;
DROP TABLE shops;
DROP TABLE markets;
