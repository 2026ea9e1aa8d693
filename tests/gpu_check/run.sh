#!/usr/bin/env bash
# `make gpu-check`: on a machine with a real GPU, builds the native parts there and compares programs that
# run through pool, node, worker and client runtime with the same programs run directly on the driver.
# Needs no network: uses the Python that is there; packages that the pool needs and that are missing may lie
# as wheels in build/wheels. Without a GPU it says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=${GPU_CHECK_PYTHON:-}
if [ -z "$python" ]; then
  if [ -x .venv/bin/python ]; then python=$PWD/.venv/bin/python; else python=$(command -v python3); fi
fi

driver=${GPU_CHECK_DRIVER:-nvidia}
if [ "$driver" = nvidia ]; then
  if ! "$python" tests/gpu_check/find_gpu.py; then
    echo "gpu-check: this machine has no NVIDIA GPU with a working driver; nothing to check."
    exit 0
  fi
fi

site=$PWD/build/gpu-check/site
mkdir -p build/gpu-check
if ls build/wheels/*.whl >/dev/null 2>&1; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$site" build/wheels/*.whl
fi
export PYTHONPATH="$PWD/server:$PWD:$site${PYTHONPATH:+:$PYTHONPATH}"

if ! ls server/gpupool/proto/gpupool/v1/pool_pb2.py >/dev/null 2>&1; then
  if "$python" -c 'import grpc_tools' 2>/dev/null; then (cd server && "$python" -m gpupool.proto.generate); fi
fi

echo "gpu-check: building the native parts"
cmake -S . -B build/gpu-check/native -DCMAKE_BUILD_TYPE=Release -DGPUPOOL_TESTS=OFF \
  -DPython3_EXECUTABLE="$python" -DCMAKE_INSTALL_PREFIX="$PWD/server/gpupool/_native" >build/gpu-check/cmake.log 2>&1 ||
  { cat build/gpu-check/cmake.log; exit 1; }
cmake --build build/gpu-check/native -j "$(nproc)" >build/gpu-check/build.log 2>&1 || { tail -40 build/gpu-check/build.log; exit 1; }
cmake --install build/gpu-check/native >/dev/null

exec "$python" -m tests.gpu_check.check --driver "$driver" "$@"
