"""What ``gpupool bench roundtrips`` measures, in a process of its own: PyTorch in eager mode.

Run by an interpreter with PyTorch; imports nothing of this project. Prints one JSON object.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from typing import Any

runtime = ctypes.CDLL("libcuda.so.1")

#: HELLO and LEASE, which open a session, are no calls of the program.
TO_ATTACH = 2


def counters() -> dict[str, Any]:
    text = ctypes.create_string_buffer(1 << 16)
    runtime.gpupool_counters(text, len(text), 0)
    found: dict[str, Any] = json.loads(text.value)
    return found


def by_name(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    earlier = before["asks_by_name"]
    counts = {name: n - earlier.get(name, [0])[0] for name, (n, _) in after["asks_by_name"].items()}
    return {name: n for name, n in counts.items() if n}


def measure(steps: int) -> dict[str, Any]:
    import torch  # type: ignore[import-not-found]  # too large to be a requirement

    started = time.perf_counter()
    torch.ones(1, device="cuda")
    first = time.perf_counter() - started
    init = counters()

    parameters = [torch.nn.Parameter(torch.randn(64, 32, device="cuda")) for _ in range(200)]
    x = torch.randn(64, 32, device="cuda")
    optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        h = x
        for parameter in parameters:
            h = torch.tanh(h + parameter)
        loss = (h * h).mean()
        loss.backward()
        optimizer.step()
        loss.item()

    before = counters()
    started = time.perf_counter()
    step()
    warm_up = time.perf_counter() - started
    after_first = counters()
    seconds, waiting, waited, posts = [], [], [], []
    for _ in range(steps):
        earlier = counters()
        started = time.perf_counter()
        step()
        took = time.perf_counter() - started
        later = counters()
        seconds.append(took)
        waiting.append((later["ask_seconds"] - earlier["ask_seconds"]) / took)
        waited.append(by_name(earlier, later))
        posts.append(later["posts"] - earlier["posts"])
    pings = []
    for _ in range(steps):
        x.zero_()  # so that there is something to wait for
        started = time.perf_counter()
        torch.cuda.synchronize()
        pings.append(time.perf_counter() - started)
    return {
        "torch": torch.__version__,
        "init": {
            "round_trips": init["asks"] + TO_ATTACH,
            "by_name": by_name({"asks_by_name": {}}, init),
            "seconds": first,
        },
        "first_step": {"by_name": by_name(before, after_first), "seconds": warm_up},
        "adam_step": {
            "round_trips": max(sum(counts.values()) for counts in waited),
            "by_name": waited[-1],
            "posts": statistics.median(posts),
            "seconds": statistics.median(seconds),
            "waiting": statistics.median(waiting),
        },
        "synchronize_seconds": statistics.median(pings),
    }


if __name__ == "__main__":
    json.dump(measure(int(sys.argv[1])), sys.stdout)
