"""What to say below a cell whose GPU share was too small: the numbers, and the line that gets a larger one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpupool.client.refused_memory import LargerShare, RefusedMemory

#: How the program gets its share: each ``%%gpu`` line asks for one, a held one is resized, code attaches one.
Way = Literal["cell", "resize", "code"]


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """``larger``: a share with room, as whoever knows the pool says; None: nobody does."""

    refused: RefusedMemory
    larger: LargerShare | None
    way: Way

    def text(self) -> str:
        """One line."""
        said = f"{self.refused.sentence()}."
        return f"{said} {self.larger.words(self._line(self.larger.count))}" if self.larger else said

    def _line(self, count: int) -> str:
        match self.way:
            case "resize":
                return "%gpu resize {}"
            case "cell":
                return "%%gpu {}" + (f" -n {count}" if count > 1 else "")
            case "code":
                return "gpupool.attach({!r}" + (f", n={count})" if count > 1 else ")")

    def view(self) -> dict[str, Any]:
        """As JSON, in bytes."""
        larger = self.larger.view() if self.larger is not None else None
        return {**self.refused.view(), "larger_share": larger, "way": self.way}


def told_of(usage: Mapping[str, Any] | None, way: Way) -> OutOfMemory | None:
    """What a kernel's use says of it."""
    said = (usage or {}).get("out_of_memory")
    return (
        OutOfMemory(RefusedMemory.parse(said), LargerShare.parse(said.get("larger_share")), way)
        if said
        else None
    )
