"""What the pool knows and what happens to it: records, events, instructions. The pool decides by them, the ledger stores them."""
