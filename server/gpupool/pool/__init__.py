"""The pool server: a pure lifecycle machine, and the shell around it that does the I/O.

``state`` records → ``machine`` (events in, instructions out) → ``shell`` (ledger first, then messages)
→ ``service`` and ``nodes`` (gRPC) → ``server.serve``.
"""
