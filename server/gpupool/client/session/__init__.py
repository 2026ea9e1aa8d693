"""The GPU session of one holder: a pure state machine, and the shell that carries out what it decides."""
