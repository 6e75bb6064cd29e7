DROP TABLE customers_to_end;
