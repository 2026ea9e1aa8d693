"""The GPU sessions of kernels: what only a kernel has beside the session of every holder."""
