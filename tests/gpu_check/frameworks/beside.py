"""Trains for so many seconds beside others, from a moment that all are told: how many steps it made.

A step is one in which the device has far more to do than the host, as with most models that people train: where the host is
the slower one, the device has time for everybody, and each session makes as many steps as it can, whatever its share is.

Arguments: a file that it writes when it is ready, the file that then names the moment, and the seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

from tests.gpu_check.frameworks.models import Gpt
from tests.gpu_check.moment import begin_together, device_seconds, since

#: For a rehearsal without a GPU: everything tiny.
SMALL = bool(os.environ.get("GPU_CHECK_SMALL"))
WORDS, LENGTH, BATCH = (256, 32, 2) if SMALL else (8192, 256, 64)


def main() -> None:
    ready, start, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    torch.manual_seed(0)
    model = (Gpt(WORDS, LENGTH, 64, 1) if SMALL else Gpt(WORDS, LENGTH, 512, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=not SMALL)
    text = torch.randint(0, WORDS, (BATCH, LENGTH + 1), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            found = model(text[:, :-1])
        functional.cross_entropy(found.float().flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()

    for _ in range(1 if SMALL else 5):
        step()
    torch.cuda.synchronize()
    before = device_seconds()
    begin, early = begin_together(ready, start)
    steps = 0
    while time.time() < begin + seconds:
        step()
        torch.cuda.synchronize()
        steps += 1
    figures = {"steps": steps, "seconds": round(time.time() - begin, 3), "device_seconds": since(before)}
    print(json.dumps({"result": early, "figures": figures, "version": torch.__version__}))


if __name__ == "__main__":
    main()
