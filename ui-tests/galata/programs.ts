/** Defines a kernel, runs it, keeps the array on the device. Prints `sum 768.0`. */
export const ADD = `\
import numpy as np
from numba import cuda

@cuda.jit
def add(values, amount):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += amount

kept = cuda.to_device(np.ones(256, dtype=np.float32))
add[2, 128](kept, 2.0)
print("sum", kept.copy_to_host().sum())
`;

/** Goes on with the array of `ADD`. Prints `sum 1024.0`. */
export const ADD_AGAIN = `\
add[2, 128](kept, 1.0)
print("sum", kept.copy_to_host().sum())
`;
