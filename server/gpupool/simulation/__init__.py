"""The pool's own machine in virtual time, fed with a trace: what would happen with more devices, or under other rules."""
