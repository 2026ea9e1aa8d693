"""Generates the Python modules of `gpupool.v1` from `pool.proto`.

Run as ``python -m gpupool.proto.generate`` (or by path, before the package is installed).
The outputs lie beside the proto file and are not kept in version control: they belong to the
installed version of protobuf. Type stubs are made too when `mypy-protobuf` is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

#: The folder that holds the `gpupool` package. Imports in generated modules are made from proto
#: paths, so paths relative to it give `gpupool.proto.gpupool.v1`, which is where the modules are.
SOURCE_ROOT = Path(__file__).resolve().parents[2]

PROTO_FILES = ("gpupool/proto/gpupool/v1/pool.proto",)


def stub_plugins() -> list[str]:
    """The protoc arguments that add type stubs, empty when `mypy-protobuf` is missing."""
    arguments = []
    for name in ("mypy", "mypy_grpc"):
        program = f"protoc-gen-{name}"
        found = shutil.which(program, path=str(Path(sys.executable).parent)) or shutil.which(program)
        if found is None:
            return []
        arguments += [f"--plugin={program}={found}", f"--{name}_out=quiet:{SOURCE_ROOT}"]
    return arguments


def generate() -> None:
    """Writes `*_pb2.py`, `*_pb2_grpc.py` and stubs.

    Raises:
        subprocess.CalledProcessError: protoc refused the proto file; its message is on stderr.
    """
    from grpc_tools import protoc

    well_known = Path(protoc.__file__).parent / "_proto"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{SOURCE_ROOT}",
            f"-I{well_known}",
            f"--python_out={SOURCE_ROOT}",
            f"--grpc_python_out={SOURCE_ROOT}",
            *stub_plugins(),
            *PROTO_FILES,
        ],
        check=True,
        cwd=SOURCE_ROOT,
    )


if __name__ == "__main__":
    generate()
