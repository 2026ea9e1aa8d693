"""An allocation over the device's (or the share's) memory fails as CUDA says; the process goes on."""

import json

import numpy as np
from numba import cuda

free, size = cuda.current_context().get_memory_info()
assert 0 < free <= size
try:
    cuda.device_array(size + (64 << 20), np.uint8)
    refused = False
except Exception as error:  # the class differs between versions of numba-cuda
    refused = "OUT_OF_MEMORY" in str(error)
array = cuda.to_device(np.arange(10))
print(json.dumps({"result": {"refused": refused, "works_after": int(array.copy_to_host().sum())}}))
