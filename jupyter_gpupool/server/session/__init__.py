"""The GPU sessions of kernels: a pure state machine, and the shell that carries out what it decides."""
