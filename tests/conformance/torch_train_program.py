"""Ordinary eager training with PyTorch: a perceptron, an image network and a transformer, some steps each.

Run by an interpreter with PyTorch, with the device as its argument; ``torch_train.py`` starts it. One line of JSON for each
model: the losses, the time of the first step, and the median of the steps that are left when kernels are compiled.
Nothing in here is made for a software GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

STEPS = 21
#: Further steps: for so many seconds, in which kernels are compiled, and then so many that are timed.
SECONDS_BEFORE, TIMED = 6.0, 100
CLASSES = 10
WORDS = 64
LENGTH = 32


def perceptron() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Points of 32 coordinates in ten classes."""
    x = torch.randn(256, 32)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, CLASSES)), x, x[:, :CLASSES].argmax(1)


def image_network() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Images of 16 x 16 pixels in ten classes, with convolutions and batch normalisation."""
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES)),
    )
    x = torch.randn(64, 1, 16, 16)
    return model, x, x.flatten(1)[:, :CLASSES].argmax(1)


class Block(nn.Module):
    """A transformer's block with attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.asked, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.asked(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5 + mask
        x = x + self.out((functional.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, width))
        found: torch.Tensor = x + self.inner(self.between(x))
        return found


class Transformer(nn.Module):
    """Two blocks over words that are looked up by a matrix product: PyTorch's lookup needs a kernel that uses CUB."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Linear(WORDS, width, bias=False)
        self.places = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(2)])
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS)
        self.register_buffer("mask", torch.triu(torch.full((LENGTH, LENGTH), float("-inf")), 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(functional.one_hot(x, WORDS).float()) + self.places
        for block in self.blocks:
            x = block(x, self.mask)
        found: torch.Tensor = self.head(self.last(x)).flatten(0, 1)
        return found


def transformer() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The next of 32 words."""
    text = torch.randint(0, WORDS, (8, LENGTH + 1))
    return Transformer(), text[:, :-1], text[:, 1:].flatten()


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor, torch.Tensor]]] = {
    "perceptron": perceptron,
    "image network": image_network,
    "transformer": transformer,
}


def train(name: str, device: str) -> dict[str, object]:
    """Losses of every fifth of the first steps; seconds of the first step, milliseconds of a later one."""
    torch.manual_seed(0)
    model, x, y = MODELS[name]()
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    began = time.monotonic()
    first = 0.0
    for number in range(STEPS):
        loss = step()
        if number % 5 == 0:
            losses.append(loss.item())
        if number == 0:
            first = time.monotonic() - began
    times = []
    while len(times) < TIMED:
        before = time.monotonic()
        step().item()
        if before - began > SECONDS_BEFORE:
            times.append(time.monotonic() - before)
    each = statistics.median(times) * 1000
    return {"model": name, "losses": losses, "first_s": round(first, 2), "step_ms": round(each, 2)}


if __name__ == "__main__":
    for wanted in sys.argv[2:] or MODELS:
        print(json.dumps(train(wanted, sys.argv[1])), flush=True)
