"""What ``gpupool bench step`` measures, in a process of its own: training steps of whole models in eager PyTorch.

``model_steps.py MODEL STEPS``. Run by an interpreter with PyTorch; imports nothing of this project. Prints one JSON object.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found]  # too large to be a requirement
from torch import nn
from torch.nn import functional  # type: ignore[import-not-found]

runtime = ctypes.CDLL("libcuda.so.1")
_COUNTED_STEPS = 5


def counters() -> dict[str, Any]:
    """The client runtime's; without one, as directly on a driver, zeros."""
    if not hasattr(runtime, "gpupool_counters"):
        return {"asks": 0, "posts": 0, "ask_seconds": 0.0, "asks_by_name": {}}
    text = ctypes.create_string_buffer(1 << 16)
    runtime.gpupool_counters(text, len(text), 0)
    found: dict[str, Any] = json.loads(text.value)
    return found


def mlp() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """784 → 512 → 512 → 10, 128 samples."""
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    x, y = torch.randn(128, 784, device="cuda"), torch.zeros(128, dtype=torch.long, device="cuda")
    return model, lambda network: functional.cross_entropy(network(x), y)


class Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.shortcut = (
            nn.Conv2d(before, after, 1, stride, bias=False)
            if stride != 1 or before != after
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output."""
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(inner)) + self.shortcut(x))


def resnet() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """ResNet-18 for images of 32 x 32, 16 samples."""
    widths = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *(Residual(*width) for width in widths),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    x, y = torch.randn(16, 3, 32, 32, device="cuda"), torch.zeros(16, dtype=torch.long, device="cuda")
    return model, lambda network: functional.cross_entropy(network(x), y)


class Decoder(nn.Module):  # type: ignore[misc]
    """A layer of GPT-2: attention behind a causal mask, then two products."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output."""
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.inward(self.norms[0](x)).split(width, dim=2)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.outward(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


def gpt2() -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """12 layers of 768, 12 heads, 1,024 words, 64 tokens: GPT-2 small with a small vocabulary."""
    width, vocabulary = 768, 1024
    model = nn.Sequential(
        nn.Embedding(vocabulary, width), *(Decoder(width, 12) for _ in range(12)), nn.LayerNorm(width),
        nn.Linear(width, vocabulary, bias=False),
    )  # fmt: skip
    tokens = torch.zeros(1, 64, dtype=torch.long, device="cuda")
    return model, lambda network: functional.cross_entropy(
        network(tokens).view(-1, vocabulary), tokens.view(-1)
    )


MODELS = {"mlp": mlp, "resnet": resnet, "gpt2": gpt2}


def measure(name: str, steps: int) -> dict[str, Any]:
    """Medians of ``steps`` training steps after two that are not counted."""
    model, loss_of = MODELS[name]()
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        loss.item()

    for _ in range(2):
        step()
    # One right after the other, as programs train. To ask for counters between them would wait for the worker, on a share
    # alone.
    seconds = []
    of_thread, of_process = time.thread_time(), time.process_time()
    for _ in range(steps):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    of_thread, of_process = time.thread_time() - of_thread, time.process_time() - of_process
    blocking, messages, waited, ask_seconds = [], [], {}, []
    for _ in range(_COUNTED_STEPS):
        earlier = counters()
        step()
        later = counters()
        ask_seconds.append(later["ask_seconds"] - earlier["ask_seconds"])
        blocking.append(later["asks"] - earlier["asks"])
        messages.append(later["posts"] - earlier["posts"] + blocking[-1])
        before = earlier["asks_by_name"]
        waited = {
            n: c - before.get(n, [0])[0]
            for n, (c, _) in later["asks_by_name"].items()
            if c > before.get(n, [0])[0]
        }
    return {
        "torch": torch.__version__,
        "seconds": statistics.median(seconds),
        "blocking": max(blocking),
        "messages": statistics.median(messages),
        "waited_seconds": statistics.median(ask_seconds),
        "thread_cpu_seconds": of_thread / steps,
        "process_cpu_seconds": of_process / steps,
        "waited": waited,
    }


if __name__ == "__main__":
    json.dump(measure(sys.argv[1], int(sys.argv[2])), sys.stdout)
    sys.stdout.flush()
    # At once: a thread of PyTorch's autograd that asks an ending interpreter for its lock ends the process with an abort
    # (Python 3.11, PyTorch 2.15: about one run of ten).
    os._exit(0)
