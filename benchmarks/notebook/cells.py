"""What ``%%gpu`` adds to a warm cell of a kernel that is attached."""

from __future__ import annotations

import time
from typing import Any, Final

from jupyter_client.blocking.client import BlockingKernelClient

from benchmarks.notebook.problem import BenchError

#: Makes what the cell needs, and compiles it.
PREPARE: Final = """\
import numpy as np
from numba import cuda

@cuda.jit
def add(values, amount):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += amount

kept = cuda.to_device(np.zeros(256, dtype=np.float32))
"""
#: A launch and a wait: the least that is a cell of the GPU.
CELL: Final = "add[2, 128](kept, 1.0)\ncuda.synchronize()\n"
#: Between two cells, seconds: a cell waits until IPython has written the one before into its history, on disk.
PAUSE_SECONDS: Final = 0.3


def run(client: BlockingKernelClient, code: str, patience: float = 60.0) -> float:
    """Milliseconds from sending a cell to its reply. Raises BenchError when it fails."""
    started = time.perf_counter()
    message = client.execute(code, allow_stdin=False)
    deadline = started + patience
    while True:
        reply: dict[str, Any] = client.get_shell_msg(timeout=max(0.1, deadline - time.perf_counter()))
        if reply["parent_header"].get("msg_id") == message:
            break
    took = 1000 * (time.perf_counter() - started)
    if reply["content"]["status"] != "ok":
        raise BenchError(f"A cell failed: {reply['content'].get('evalue', '')}")
    return took


def plain_and_magic(client: BlockingKernelClient, share: str, rounds: int) -> tuple[list[float], list[float]]:
    """The same cell without and with ``%%gpu``, in turns; ms. The kernel is attached by hold all the time."""
    run(client, f"%gpu attach {share}")
    run(client, PREPARE)
    magic = f"%%gpu {share}\n{CELL}"
    for code in (CELL, magic, CELL, magic):
        run(client, code)
    without: list[float] = []
    with_: list[float] = []
    for _ in range(rounds):
        for code, found in ((CELL, without), (magic, with_)):
            time.sleep(PAUSE_SECONDS)
            found.append(run(client, code))
    return without, with_
