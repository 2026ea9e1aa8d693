"""What a program needs to hold a share of a pooled GPU.

* :mod:`gpupool.client.pool`: ask the pool for leases (gRPC);
* :mod:`gpupool.client.holder`: keep them renewed;
* :mod:`gpupool.client.session_file`: tell a process which share it has;
* :mod:`gpupool.client.runtime`: the CUDA libraries of this project inside a process.

Nothing here needs Jupyter, a database or a terminal. The last two need only the standard
library and are what a kernel process imports.
"""
