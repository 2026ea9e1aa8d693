"""The Jupyter server's part: the extension, its handlers, and the sessions of all kernels."""
