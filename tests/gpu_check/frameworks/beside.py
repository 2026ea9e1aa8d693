"""Trains for so many seconds beside others, from a moment that all are told: how many steps it made.

Arguments: a file that it writes when it is ready, the file that then names the moment, and the seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

from tests.gpu_check.frameworks.models import Gpt


def main() -> None:
    ready, start, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    torch.manual_seed(0)
    model = Gpt(8192, 256, 512, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    text = torch.randint(0, 8192, (16, 257), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            found = model(text[:, :-1])
        functional.cross_entropy(found.float().flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    ready.touch()
    while not start.exists():
        time.sleep(0.001)
    begin = float(start.read_text())
    late = time.time() - begin
    while time.time() < begin:
        time.sleep(0.001)
    steps = 0
    while time.time() < begin + seconds:
        step()
        torch.cuda.synchronize()
        steps += 1
    print(json.dumps({"result": late < 0, "figures": {"steps": steps}, "version": torch.__version__}))


if __name__ == "__main__":
    main()
