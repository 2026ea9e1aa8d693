"""Which kernels work, which are idle, and what becomes of their GPUs."""
