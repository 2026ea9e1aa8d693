"""The two models whose speed is measured: ResNet-50 and a transformer of the size of GPT-2, written out."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1, and the way around (He et al. 2015, the stride in the 3x3)."""

    def __init__(self, given: int, inner: int, stride: int) -> None:
        super().__init__()
        out = 4 * inner
        self.layers = nn.Sequential(
            *(nn.Conv2d(given, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True)),
            *(
                nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
                nn.BatchNorm2d(inner),
                nn.ReLU(inplace=True),
            ),
            *(nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or given != out:
            self.around = nn.Sequential(nn.Conv2d(given, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.layers(x) + self.around(x))


def resnet50(classes: int = 1000) -> nn.Module:
    """ResNet-50: 25.6 million weights."""
    layers: list[nn.Module] = [
        *(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)),
        nn.MaxPool2d(3, 2, 1),
    ]
    given = 64
    for inner, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(given, inner, stride if block == 0 else 1))
            given = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, classes))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.asked, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.asked(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        found: torch.Tensor = x + self.inner(self.between(x))
        return found


class Gpt(nn.Module):
    """By default the size of GPT-2: 124 million weights."""

    def __init__(self, words: int = 50304, length: int = 1024, width: int = 768, blocks: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, width // 64) for _ in range(blocks)])
        self.last = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.last(x), self.words.weight)
