-- (nothing) -> one empty table of the state, in a metastore. Names and properties are our own; see store/schema.py.
CREATE TABLE IF NOT EXISTS {table} ({columns}) USING delta TBLPROPERTIES ({properties})
