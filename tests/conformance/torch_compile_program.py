"""Training under torch.compile on a software GPU, step by step beside the same training on the CPU.

Run by an interpreter with PyTorch; ``torch_compile.py`` starts it. For each model one line of JSON: the losses of both
sides. Forward, backward and the optimizer's step are compiled; what is uncompiled (making parameters, batches and the
optimizer's state) happens on the CPU and is brought to the device by ``copy_``, which needs no kernel.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

STEPS = 4
LEARNING_RATE = 1e-2

#: What leaves nothing of PyTorch's own kernels in a compiled function. Given to `torch.compile`, so that they hold in every
#: thread: backward is compiled in one of autograd's, where what was assigned to `torch._inductor.config` is not known.
OPTIONS: dict[str, bool] = {
    # Constants are computed where they are used, not by PyTorch's own kernels while it compiles.
    "joint_graph_constant_folding": False,
    # One configuration of each kernel, chosen without measuring: compiling the others takes longer than all that is run,
    # and measuring needs kernels of PyTorch's own.
    "deterministic": True,
    "triton.autotune_pointwise": False,
    "shape_padding": False,
}


class Perceptron(nn.Module):
    """A multilayer perceptron that sorts points of 16 coordinates into ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        return found


class Convolution(nn.Module):
    """A convolution as one matrix product of the image's patches: cuDNN's is machine code for real GPUs."""

    def __init__(self, channels: int, filters: int, side: int = 3) -> None:
        super().__init__()
        self.side = side
        self.product = nn.Linear(channels * side * side, filters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, _, height, width = x.shape
        patches = functional.unfold(x, self.side, padding=self.side // 2)
        found: torch.Tensor = self.product(patches.transpose(1, 2)).transpose(1, 2)
        return found.reshape(count, -1, height, width)


class ImageNetwork(nn.Module):
    """Two convolutions with normalisation and pooling, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Convolution(1, 8), Convolution(8, 16)
        self.norm = nn.BatchNorm2d(8)
        self.classify = nn.Linear(16 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.first(x))), 2)
        x = functional.avg_pool2d(functional.relu(self.second(x)), 2)
        found: torch.Tensor = self.classify(x.flatten(1))
        return found


class Attention(nn.Module):
    """Causal attention of several heads, written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        split = self.project(x).reshape(count, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        score = query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5
        place = torch.arange(length, device=x.device)
        score = torch.where(place[:, None] >= place, score, float("-inf"))
        mixed = (score.softmax(-1) @ value).transpose(1, 2).reshape(count, length, width)
        found: torch.Tensor = self.out(mixed)
        return found


class Transformer(nn.Module):
    """Predicts each next token: embedding, one block of attention and perceptron, and the way back to tokens."""

    def __init__(self, tokens: int = 20, width: int = 32, length: int = 16) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Parameter(torch.randn(length, width) * 0.1)
        self.attention = Attention(width, 2)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.perceptron = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.predict = nn.Linear(width, tokens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places
        x = x + self.attention(self.norms[0](x))
        x = x + self.perceptron(self.norms[1](x))
        found: torch.Tensor = self.predict(self.norms[2](x))
        return found.flatten(0, 1)


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the device, made without a kernel."""
    return torch.empty_like(tensor, device="cuda").copy_(tensor)


def moved(module: nn.Module) -> nn.Module:
    """A copy of the module whose parameters and buffers are on the device."""
    there = copy.deepcopy(module)
    for part in there.modules():
        for name, parameter in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(on_device(parameter.detach())))
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, on_device(buffer))
    return there


def optimizer_of(module: nn.Module, place: Callable[[torch.Tensor], torch.Tensor]) -> torch.optim.Optimizer:
    """AdamW with its state made beforehand: by itself it makes it with kernels of PyTorch's."""
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=LEARNING_RATE, capturable=place is on_device, foreach=True
    )
    for parameter in module.parameters():
        zeros = torch.zeros(parameter.shape)
        optimizer.state[parameter] = {
            "step": place(torch.tensor(0.0)),
            "exp_avg": place(zeros.clone()),
            "exp_avg_sq": place(zeros.clone()),
        }
    return optimizer


def losses(
    module: nn.Module,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    place: Callable[[torch.Tensor], torch.Tensor],
    compiled: bool,
) -> list[float]:
    """The loss before each of the steps."""
    optimizer = optimizer_of(module, place)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(module(x), y)

    def update() -> None:
        optimizer.step()

    forward, step = loss_of, update
    if compiled:
        forward, step = (torch.compile(part, options=OPTIONS) for part in (loss_of, update))
    one = place(torch.tensor(1.0))
    seen = []
    for x, y in batches:
        loss = forward(place(x), place(y))
        loss.backward(one)  # type: ignore[no-untyped-call]
        step()
        optimizer.zero_grad(set_to_none=True)
        seen.append(float(loss.detach().cpu()))
    return seen


def points() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(32, 16), torch.randint(10, (32,))


def images() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 1, 8, 8), torch.randint(10, (8,))


def sentences() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(20, (4, 16)), torch.randint(20, (64,))


MODELS: dict[str, tuple[type[nn.Module], Callable[[], tuple[torch.Tensor, torch.Tensor]]]] = {
    "perceptron": (Perceptron, points),
    "image network": (ImageNetwork, images),
    "transformer": (Transformer, sentences),
}


def compare(name: str) -> dict[str, Any]:
    """Trains one model on both sides, from the same parameters and on the same batches."""
    torch.manual_seed(0)
    kind, batch = MODELS[name]
    here = kind()
    there = moved(here)
    # The same batch each time: a loss that falls shows that the steps do something.
    batches = [batch()] * STEPS
    on_cpu = losses(here, batches, lambda tensor: tensor.clone(), compiled=False)
    started = time.monotonic()
    found = losses(there, batches, on_device, compiled=True)
    return {"model": name, "cpu": on_cpu, "device": found, "seconds": round(time.monotonic() - started, 1)}


if __name__ == "__main__":
    for chosen in sys.argv[1:] or MODELS:
        try:
            print(json.dumps(compare(chosen)), flush=True)
        except Exception:  # the others are still worth knowing
            traceback.print_exc()
