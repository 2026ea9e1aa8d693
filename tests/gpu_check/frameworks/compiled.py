"""`torch.compile`: a perceptron learns for ten steps, in kernels that Triton has made."""

from __future__ import annotations

import json
import os
import time

import torch
from torch.nn import functional


def main() -> None:
    device = os.environ.get("GPU_CHECK_DEVICE", "cuda")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)).to(
        device
    )
    x = torch.randn(512, 64).to(device)
    y = x[:, :10].argmax(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = torch.compile(lambda: functional.cross_entropy(model(x), y))
    losses = []
    began = time.monotonic()
    first = 0.0
    for number in range(10):
        optimizer.zero_grad()
        loss = step()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if number == 0:
            first = time.monotonic() - began
    print(
        json.dumps({"result": losses, "figures": {"first_s": round(first, 2)}, "version": torch.__version__})
    )


if __name__ == "__main__":
    main()
