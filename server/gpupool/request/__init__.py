"""One request for a GPU: the record, and the table of options that every way to write one is made from."""
