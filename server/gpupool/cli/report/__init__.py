"""``gpupool report usage``."""
