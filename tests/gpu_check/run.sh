#!/usr/bin/env bash
# `make gpu-check`: on a machine with a real GPU, compares programs that run through pool, node, worker and client
# runtime with the same programs run directly on the driver. docs/contributing/tests.md says how to carry it to a
# machine without a network. All arguments go to check.py.
#
#   GPU_CHECK_PYTHON   the Python of the programs [default: the one with PyTorch, of .venv's and python3]
#   GPU_CHECK_BUILD    always: compile the native parts here, also where they were brought along
#   GPU_CHECK_REQUIRE  1: a machine without a working GPU is a failure
#   GPU_CHECK_DRIVER   software: a rehearsal on the software GPU
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONUNBUFFERED=1

say() { echo "gpu-check: $*"; }

choose_python() {
  local candidate
  for candidate in "$PWD/.venv/bin/python" "$(command -v python3 || true)"; do
    [ -x "$candidate" ] || continue
    : "${python:=$candidate}"
    if "$candidate" -c 'import sys, importlib.util as u; sys.exit(u.find_spec("torch") is None)'; then
      python=$candidate
      return
    fi
  done
}
python=${GPU_CHECK_PYTHON:-}
[ -n "$python" ] || choose_python
[ -n "$python" ] || { say "this machine has no python3"; exit 1; }

driver=${GPU_CHECK_DRIVER:-nvidia}
if [ "$driver" = nvidia ] && ! "$python" tests/gpu_check/find_gpu.py; then
  say "this machine has no NVIDIA GPU with a working driver; nothing to check."
  exit "$([ "${GPU_CHECK_REQUIRE:-0}" = 1 ] && echo 1 || echo 0)"
fi

work=$PWD/build/gpu-check
site=$work/site
bundle=$PWD/build/gpu-check-bundle
worker=server/gpupool/_native/bin/gpupool-worker
mkdir -p "$work"

# Native parts that were brought along or built here are left alone; those of an earlier bundle give way to a new one.
if [ -e "$bundle/product.tar.gz" ] && [ "${GPU_CHECK_BUILD:-}" != always ]; then
  sum=$(cksum <"$bundle/product.tar.gz")
  if [ ! -x "$worker" ] || { [ -e "$work/unpacked" ] && [ "$(cat "$work/unpacked")" != "$sum" ]; }; then
    say "unpacks $bundle"
    "$python" -W ignore -m tarfile -e "$bundle/product.tar.gz" "$PWD"
    echo "$sum" >"$work/unpacked"
  fi
fi

# Packages of the pool that this Python lacks. Without them the check goes on, one level lower.
wheels=("$bundle"/wheels/*.whl)
[ -e "${wheels[0]}" ] || wheels=("$PWD"/build/wheels/*.whl)
if [ -e "${wheels[0]}" ]; then
  rm -rf "$site"
  if "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --disable-pip-version-check --root-user-action=ignore \
      --target "$site" "${wheels[@]}" || { say "the wheels don't fit this Python; goes on without them"; rm -rf "$site"; }
  else
    for wheel in "${wheels[@]}"; do "$python" -m zipfile -e "$wheel" "$site"; done
  fi
fi
export PYTHONPATH="$PWD/server:$PWD:$site${PYTHONPATH:+:$PYTHONPATH}"

if [ ! -e server/gpupool/proto/gpupool/v1/pool_pb2.py ] && "$python" -c 'import grpc_tools' 2>/dev/null; then
  (cd server && "$python" -m gpupool.proto.generate)
fi

build() {
  local generator=() native=$work/native
  command -v cmake >/dev/null ||
    { say "no native parts and no cmake: run 'make gpu-check-bundle' on a machine that can compile, and bring build/gpu-check-bundle"; exit 1; }
  if command -v ninja >/dev/null && [ ! -e "$native/CMakeCache.txt" ]; then generator=(-G Ninja); fi
  say "builds the native parts"
  cmake -S . -B "$native" ${generator[@]+"${generator[@]}"} -DCMAKE_BUILD_TYPE=Release -DGPUPOOL_TESTS=OFF \
    -DPython3_EXECUTABLE="$python" -DCMAKE_INSTALL_PREFIX="$PWD/server/gpupool/_native" >"$work/cmake.log" 2>&1 ||
    { tail -40 "$work/cmake.log"; exit 1; }
  cmake --build "$native" -j "$(nproc)" --target product >"$work/build.log" 2>&1 || { tail -40 "$work/build.log"; exit 1; }
  cmake --install "$native" --component product >/dev/null
}
if [ -x "$worker" ] && [ "${GPU_CHECK_BUILD:-}" != always ]; then
  say "uses the native parts that are there ($worker)"
else
  build
fi

exec "$python" -m tests.gpu_check.check --driver "$driver" --spent "$SECONDS" "$@"
