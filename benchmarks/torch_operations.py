"""What ``gpupool bench operations`` measures, in a process of its own: operations of the math libraries by PyTorch.

``torch_operations.py ROUNDS``, on the software GPU, by an interpreter with PyTorch; imports nothing of this project. Each
operation runs on the CPU and on the device in turns, so that a busy moment falls on both. Prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found]  # too large to be a requirement
from torch.nn import functional  # type: ignore[import-not-found]


def operations() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """By name: what is called, and what it is given, on the CPU."""
    return {
        "product": (torch.mm, (torch.randn(1024, 1024), torch.randn(1024, 1024))),
        "convolution": (
            lambda x, w: functional.conv2d(x, w, padding=1),
            (torch.randn(16, 64, 56, 56), torch.randn(64, 64, 3, 3)),
        ),
        "fft": (torch.fft.fft, (torch.randn(1 << 20, dtype=torch.complex64),)),
    }


#: PyTorch's threads on the CPU go on looking for work for some milliseconds, and keep a processor meanwhile.
REST_SECONDS = 0.02


def seconds(call: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    time.sleep(REST_SECONDS)
    start = time.perf_counter()
    call(*arguments)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    rounds = int(sys.argv[1])
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    found: dict[str, Any] = {"torch": str(torch.__version__), "threads": torch.get_num_threads()}
    for name, (call, on_cpu) in operations().items():
        on_device = tuple(tensor.cuda() for tensor in on_cpu)
        wanted, got = call(*on_cpu), call(*on_device).cpu()
        times = [(seconds(call, on_cpu), seconds(call, on_device)) for _ in range(rounds)]
        cpu, device = (statistics.median(column) for column in zip(*times, strict=True))
        error = float((got - wanted).abs().max() / wanted.abs().max())
        found[name] = {
            "cpu_seconds": cpu,
            "device_seconds": device,
            "ratio": statistics.median(a / b for a, b in times),
            "error": error,
        }
    print(json.dumps(found))  # noqa: T201 (the result)


if __name__ == "__main__":
    main()
