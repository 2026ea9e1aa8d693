"""Steps per second of ResNet-50 at batch 256 and 1, and of a transformer of the size of GPT-2, in bfloat16.

A report: both sides must run, but no ratio of their speeds is wrong, because a first run on a new card has nothing to be
compared with.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from tests.gpu_check.frameworks.models import Gpt, resnet50

DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
#: For a dry run without a GPU: everything tiny, one step.
SMALL = bool(os.environ.get("GPU_CHECK_SMALL"))
WARM_UP, SECONDS = (0, 0.0) if SMALL else (5, 4.0)


def images(batch: int) -> Callable[[], torch.Tensor]:
    size = 32 if SMALL else 224
    model = resnet50().to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, foreach=True)
    x = torch.randn(batch, 3, size, size, device=DEVICE).to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (batch,), device=DEVICE)
    if batch == 1:
        model.eval()  # a mean of one value is none

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = functional.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def words(batch: int) -> Callable[[], torch.Tensor]:
    model = (Gpt(256, 32, 64, 1) if SMALL else Gpt()).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=not SMALL)
    count, length = (256, 32) if SMALL else (50304, 1024)
    text = torch.randint(0, count, (batch, length + 1), device=DEVICE)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            found = model(text[:, :-1])
        loss = functional.cross_entropy(found.float().flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


def rate(step: Callable[[], torch.Tensor]) -> float:
    """Steps per second, after a warm-up; the host is never waited for within them."""
    for _ in range(WARM_UP):
        step()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    began, steps = time.monotonic(), 0
    while steps == 0 or time.monotonic() - began < SECONDS:
        for _ in range(1 if SMALL else 10):
            step()
            steps += 1
        if DEVICE == "cuda":
            torch.cuda.synchronize()
    return steps / (time.monotonic() - began)


def main() -> None:
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    figures: dict[str, object] = {}
    for name, made in {
        "ResNet-50, batch 256": lambda: images(2 if SMALL else 256),
        "ResNet-50, batch 1": lambda: images(1),
        "GPT-2, batch 8": lambda: words(2 if SMALL else 8),
    }.items():
        try:
            figures[f"{name}, steps/s"] = round(rate(made()), 3)
        except RuntimeError as error:  # a card with less memory still shows the others
            figures[f"{name}, problem"] = str(error)[:300]
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
    print(json.dumps({"result": sorted(figures), "figures": figures, "version": torch.__version__}))


if __name__ == "__main__":
    main()
