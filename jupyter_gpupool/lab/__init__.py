"""`make lab`: a pool, a node and JupyterLab in one command; `python -m jupyter_gpupool.lab` starts it."""
