"""Wheel hook: the wheel carries native libraries, so it is tagged for this platform.

The front end and the native parts are built by `make build`; a wheel without them
would be useless, so their absence is an error that says what to run.
"""

from __future__ import annotations

import platform
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REQUIRED = (
    "server/gpupool/_native/bin/gpupool-worker",
    "server/gpupool/_native/client/libcuda.so.1",
    "server/gpupool/proto/gpupool/v1/pool_pb2.py",
    "jupyter_gpupool/labextension/package.json",
    "jupyter_gpupool/server/rest/openapi.json",
    "jupyter_gpupool/widget/static/usage.js",
    "jupyter_gpupool/widget/static/usage.css",
)


class PlatformWheel(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        missing = [path for path in REQUIRED if not Path(self.root, path).exists()]
        if missing:
            raise RuntimeError(f"not built yet: {', '.join(missing)}; run `make build` first")
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if not machine.startswith("linux"):
            raise RuntimeError(f"jupyter-gpupool runs on Linux only, this is {platform.platform()}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{machine}"
