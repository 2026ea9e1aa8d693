"""Convolutions written out: a sum over the taps of a filter, in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.libraries.machine import Array


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a convolution descriptor says."""

    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    flipped: bool = False

    def output(self, size: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
        """The size of an output."""
        return tuple(
            (length + 2 * pad - (taps - 1) * dilation - 1) // step + 1
            for length, pad, taps, dilation, step in zip(
                size, self.padding, kernel, self.dilation, self.stride, strict=True
            )
        )

    def taps(
        self, kernel: tuple[int, ...], output: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each tap: its place in the filter, and what all results read of the padded input by it."""
        for tap in np.ndindex(*kernel):
            read = tuple(
                slice(at * dilation, at * dilation + (count - 1) * step + 1, step)
                for at, dilation, count, step in zip(tap, self.dilation, output, self.stride, strict=True)
            )
            place = (
                tuple(taps - 1 - at for taps, at in zip(kernel, tap, strict=True)) if self.flipped else tap
            )
            yield place, read

    def padded(self, array: Array) -> Array:
        return np.pad(array, [(0, 0), (0, 0), *((pad, pad) for pad in self.padding)])

    def inside(self, padded: Array) -> Array:
        return padded[(slice(None), slice(None), *self._inside(padded))]

    def _inside(self, padded: Array) -> tuple[Any, ...]:
        return tuple(slice(pad, size - pad) for pad, size in zip(self.padding, padded.shape[2:], strict=True))

    def group(self, channels: int, index: int) -> slice:
        each = channels // self.groups
        return slice(index * each, (index + 1) * each)


def index(*parts: Any) -> tuple[Any, ...]:
    """A place in an array; tuples among the parts are taken apart."""
    return tuple(piece for part in parts for piece in (part if isinstance(part, tuple) else (part,)))


ALL: Final = slice(None)


def forward(x: Array, w: Array, of: Geometry) -> Array:
    kernel = w.shape[2:]
    size = of.output(x.shape[2:], kernel)
    made = np.zeros((x.shape[0], w.shape[0], *size))
    padded = of.padded(x)
    for group in range(of.groups):
        c, k = of.group(x.shape[1], group), of.group(w.shape[0], group)
        for place, read in of.taps(kernel, size):
            made[:, k] += np.einsum("nc...,kc->nk...", padded[index(ALL, c, read)], w[index(k, ALL, place)])
    return made


def backward_data(shape: tuple[int, ...], w: Array, dy: Array, of: Geometry) -> Array:
    padded = of.padded(np.zeros(shape))
    for group in range(of.groups):
        c, k = of.group(shape[1], group), of.group(w.shape[0], group)
        for place, read in of.taps(w.shape[2:], dy.shape[2:]):
            padded[index(ALL, c, read)] += np.einsum("nk...,kc->nc...", dy[:, k], w[index(k, ALL, place)])
    return of.inside(padded)


def backward_filter(x: Array, shape: tuple[int, ...], dy: Array, of: Geometry) -> Array:
    made = np.zeros(shape)
    padded = of.padded(x)
    for group in range(of.groups):
        c, k = of.group(x.shape[1], group), of.group(shape[0], group)
        for place, read in of.taps(shape[2:], dy.shape[2:]):
            made[index(k, ALL, place)] = np.einsum(
                "nkp,ncp->kc",
                dy[:, k].reshape(dy.shape[0], -1, int(np.prod(dy.shape[2:]))),
                padded[index(ALL, c, read)].reshape(x.shape[0], -1, int(np.prod(dy.shape[2:]))),
            )
    return made
