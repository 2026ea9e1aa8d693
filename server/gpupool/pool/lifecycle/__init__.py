"""The pool's life cycle: the pure machine, and the shell that stores and carries out what it decides."""
