"""``gpupool pool``."""
