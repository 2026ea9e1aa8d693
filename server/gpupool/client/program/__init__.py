"""The session of a program that no Jupyter server holds a share for: it attaches by itself, or runs under ``gpupool run``."""
