"""cuda-core: NVRTC to PTX, stream, buffers, launch."""

import json

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

CODE = """
extern "C" __global__ void scale(float* x, float factor, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
    x[i] *= factor;
}
"""

device = Device()
device.set_current()
stream = device.create_stream()
arch = "".join(str(part) for part in device.compute_capability)
program = Program(CODE, code_type="c++", options=ProgramOptions(std="c++17", arch=f"compute_{arch}"))
kernel = program.compile("ptx").get_kernel("scale")

from cuda.bindings import driver  # noqa: E402 - after the device is current

host = np.arange(4096, dtype=np.float32)
buffer = device.allocate(host.nbytes, stream=stream)
driver.cuMemcpyHtoDAsync(int(buffer.handle), host.ctypes.data, host.nbytes, stream.handle)
launch(stream, LaunchConfig(grid=8, block=128), kernel, buffer, np.float32(3.0), np.uint64(host.size))
back = np.empty_like(host)
driver.cuMemcpyDtoHAsync(back.ctypes.data, int(buffer.handle), host.nbytes, stream.handle)
stream.sync()
assert np.array_equal(back, host * 3)
buffer.close(stream)
stream.close()
print(json.dumps({"result": float(back.sum())}))
