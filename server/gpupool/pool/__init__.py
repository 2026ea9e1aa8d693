"""The pool server: a pure life cycle machine, and the shell around it that does the I/O.

``gpupool.model`` records → ``lifecycle.machine`` (events in, instructions out) → ``lifecycle.shell``
(ledger first, then messages) → ``api`` (gRPC) → ``server.serve``. README.md shows the rooms.
"""
