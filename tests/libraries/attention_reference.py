"""Scaled dot product attention by its definition, in double precision, with its gradients."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.libraries.machine import Array


@dataclass(slots=True)
class Attention:
    """What is computed: [image, head, step, number] each. A head of ``k`` and ``v`` serves several of ``q``."""

    q: Array
    k: Array
    v: Array
    scale: float = 1
    bias: Array | None = None
    q_lengths: Array | None = None
    k_lengths: Array | None = None
    left: int | None = None
    right: int | None = None
    from_end: bool = False
    scores: Array = field(init=False)
    counts: Array = field(init=False)
    weights: Array = field(init=False)

    def __post_init__(self) -> None:
        group = self.q.shape[1] // self.k.shape[1]
        self.scores = self.scale * self.q @ np.repeat(self.k, group, 1).swapaxes(2, 3)
        if self.bias is not None:
            self.scores = self.scores + self.bias
        self.counts = np.broadcast_to(self._counted(), self.scores.shape)
        exponentials = np.where(self.counts, np.exp(self.scores), 0)
        sums = exponentials.sum(3, keepdims=True)
        self.weights = np.divide(exponentials, sums, out=np.zeros_like(exponentials), where=sums != 0)

    def _counted(self) -> Array:
        images, rows, columns = self.q.shape[0], self.q.shape[2], self.k.shape[2]
        row, column = np.arange(rows)[None, None, :, None], np.arange(columns)[None, None, None, :]
        q_ends = np.full(images, rows) if self.q_lengths is None else self.q_lengths
        k_ends = np.full(images, columns) if self.k_lengths is None else self.k_lengths
        q_ends, k_ends = q_ends[:, None, None, None], k_ends[:, None, None, None]
        counted = np.ones((images, 1, rows, columns), bool)
        if self.q_lengths is not None:
            counted = (row < q_ends) & (column < k_ends)
        shift = k_ends - q_ends if self.from_end else 0
        if self.right is not None:
            counted = counted & (row + self.right + shift >= column)
        if self.left is not None:
            counted = counted & (column + self.left - shift > row)
        return counted

    @property
    def result(self) -> Array:
        out: Array = self.weights @ np.repeat(self.v, self.q.shape[1] // self.v.shape[1], 1)
        return out

    @property
    def statistics(self) -> Array:
        with np.errstate(divide="ignore"):
            logarithms: Array = np.log(np.where(self.counts, np.exp(self.scores), 0).sum(3, keepdims=True))
        return logarithms

    def gradients(self, dy: Array) -> dict[str, Array]:
        """Of q, k, v, and of the scores without the scale, whose sum is the bias's."""
        images, heads = self.q.shape[:2]
        group = heads // self.k.shape[1]
        k, v = np.repeat(self.k, group, 1), np.repeat(self.v, group, 1)
        of_weights = dy @ v.swapaxes(2, 3)
        of_scores = self.weights * (of_weights - (self.weights * of_weights).sum(3, keepdims=True))

        def grouped(array: Array) -> Array:
            summed: Array = array.reshape(images, heads // group, group, *array.shape[2:]).sum(2)
            return summed

        return {
            "q": self.scale * of_scores @ k,
            "k": grouped(self.scale * of_scores.swapaxes(2, 3) @ self.q),
            "v": grouped(self.weights.swapaxes(2, 3) @ dy),
            "scores": of_scores,
        }
