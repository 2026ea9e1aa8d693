"""Wheel hook: the wheel carries native libraries, so it is tagged for this platform, and the example notebooks.

In a checkout the front end and the native parts are built by `make build`; a wheel without them would be useless, so their
absence is an error that says what to run. A source distribution has the front end as it was built, and its native parts
are compiled here.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = (
    "server/gpupool/_native/bin/gpupool-worker",
    "server/gpupool/_native/client/libcuda.so.1",
)
MADE = (
    "server/gpupool/proto/gpupool/v1/pool_pb2.py",
    "jupyter_gpupool/labextension/package.json",
    "jupyter_gpupool/server/rest/openapi.json",
    "jupyter_gpupool/widget/static/usage.js",
    "jupyter_gpupool/widget/static/usage.css",
)
PACKAGES = "g++ cmake make libssl-dev liblz4-dev libzstd-dev"


class PlatformWheel(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if not machine.startswith("linux"):
            raise RuntimeError(f"jupyter-gpupool runs on Linux only, this is {platform.platform()}")
        if absent(root, NATIVE) and (root / "PKG-INFO").exists():
            build_native(root)
        missing = absent(root, NATIVE + MADE)
        if missing:
            raise RuntimeError(f"not built yet: {', '.join(missing)}; run `make build` first")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{machine}"
        for notebook in sorted((root / "examples").glob("*.ipynb")):
            build_data["force_include"][str(notebook)] = f"gpupool/_examples/{notebook.name}"


def absent(root: Path, paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if not (root / path).exists()]


def build_native(root: Path) -> None:
    """Compiles what runs, as `make build` does. Takes minutes."""
    lacking = [tool for tool in ("cmake", "make", "c++") if shutil.which(tool) is None]
    if lacking:
        raise RuntimeError(
            f"a source distribution is compiled, and {', '.join(lacking)} is missing; on Debian: apt-get install {PACKAGES}"
        )
    build = root / "build" / "native"
    environment = {**os.environ, **header_folders()}
    for command in (
        ["cmake", "-S", str(root), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", "-DGPUPOOL_TESTS=OFF",
         f"-DPython3_EXECUTABLE={sys.executable}", f"-DCMAKE_INSTALL_PREFIX={root / 'server/gpupool/_native'}"],
        ["cmake", "--build", str(build), "-j", os.environ.get("GPUPOOL_BUILD_JOBS", str(os.cpu_count() or 1)),
         "--target", "product"],
        ["cmake", "--install", str(build), "--component", "product", "--strip"],
    ):  # fmt: skip
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"the native parts cannot be compiled; they need, on Debian: {PACKAGES}. "
                f"`{' '.join(command)}` said at last:\n{done.stdout[-3000:]}"
            )


def header_folders() -> dict[str, str]:
    """Where CUDA's headers are: an isolated build has its requirements elsewhere than its interpreter."""
    found: dict[str, str] = {}
    for entry in map(Path, sys.path):
        newest, older = entry / "nvidia" / "cu13" / "include", entry / "nvidia" / "cuda_runtime" / "include"
        if (newest / "cuda.h").exists():
            found |= {"GPUPOOL_CUDA_INCLUDE": str(newest), "GPUPOOL_CUDA13_INCLUDE": str(newest)}
        if (older / "cuda_runtime_api.h").exists():
            found["GPUPOOL_CUDA12_INCLUDE"] = str(older)
    return found | {name: os.environ[name] for name in found if name in os.environ}
