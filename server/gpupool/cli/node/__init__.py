"""``gpupool node start``."""
