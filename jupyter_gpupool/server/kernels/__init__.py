"""How the server starts kernels with their GPU environment, and learns of their end."""
