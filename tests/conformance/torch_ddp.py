"""`make conformance-torch-ddp`: PyTorch's DDP over NCCL, two processes with a share each, beside the CPU.

GPUPOOL_TORCH_PYTHON is an interpreter with PyTorch for CUDA, for which a kernel pack was built.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.conformance.services import pool_and_node
from tests.conformance.torch_train import CAPABILITY, GPUPOOL, MEMORY_MIB, ROOT, TOLERANCE

PROGRAM: Final = Path(__file__).with_name("torch_ddp_program.py")
RANKS: Final = 2


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main() -> int:
    python = os.environ.get("GPUPOOL_TORCH_PYTHON", sys.executable)
    settings = {"GPUPOOL_SOFTGPU_COMPUTE_CAPABILITY": CAPABILITY}
    with (
        tempfile.TemporaryDirectory(prefix="gpupool-") as home,
        pool_and_node(Path(home), RANKS, MEMORY_MIB, settings) as services,
    ):
        environment = dict(
            os.environ,
            PYTHONPATH=str(ROOT / "server"),
            GPUPOOL_HOME=services["GPUPOOL_HOME"],
            MASTER_PORT=str(free_port()),
        )
        command = [*GPUPOOL, "run", "-p", "0.5", "--wait", "120", "--", python, str(PROGRAM)]
        ranks = [
            subprocess.Popen(
                command, env=environment | {"RANK": str(rank)}, cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            for rank in range(RANKS)
        ]
        said = [rank.communicate(timeout=300)[0] for rank in ranks]
    found = [
        json.loads(text) if rank.returncode == 0 else None for rank, text in zip(ranks, said, strict=True)
    ]
    for result in found:
        print(
            "FAILED" if result is None or not result["apart"] <= TOLERANCE else "same losses",
            json.dumps(result),
        )
    return 0 if all(result is not None and result["apart"] <= TOLERANCE for result in found) else 1


if __name__ == "__main__":
    sys.exit(main())
