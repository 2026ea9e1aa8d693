"""An allocation that a share had no room for, and the share that would have had it.

The client runtime keeps the figures of the last one (``src/client/lease/refused_memory.h``): in its counters, and in a file
beside the session file, which goes when an allocation of at least that size succeeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from gpupool.amounts import amount
from gpupool.client.types import Device, GrantedShare
from gpupool.client.usage_file import REFUSED_SUFFIX
from gpupool.shares import WHOLE_DEVICE_MILLI, format_milli, mib_of_milli, milli_of_mib

MIB: Final = 1 << 20
#: Shares are offered in tenths of a GPU; where devices differ in size, in steps of half a GiB.
STEP_MILLI: Final = 100
STEP_MIB: Final = 512
#: The file is one short line; anything larger is not ours.
_MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class RefusedMemory:
    """Bytes of one device; ``device`` is its ordinal in the process.

    Attributes:
        asked: by the allocation that was refused.
        share: of memory, as the program has it; ``used`` of it.
        largest_free: what could be had at once: fragments make it less than ``share`` - ``used``.
        needed: a share of this size would have had room.
    """

    asked: int
    share: int
    used: int
    largest_free: int
    needed: int
    device: int = 0

    @classmethod
    def parse(cls, value: object) -> Self:
        """From the runtime's JSON. Raises ValueError, which names what is wrong."""
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} is not a record of refused memory")
        figures: dict[str, int] = {}
        for name in ("asked", "share", "used", "largest_free", "needed", "device"):
            figure = value.get(name)
            if not isinstance(figure, int) or isinstance(figure, bool) or not 0 <= figure < 1 << 64:
                raise ValueError(f"{name} of a record of refused memory is a count, not {figure!r}")
            figures[name] = figure
        return cls(**figures)

    def sentence(self) -> str:
        """What happened, with the numbers, without the final point."""
        return (
            f"out of memory: {amount(self.asked)} asked, the share has {amount(self.share)}, "
            f"{amount(self.used)} used (largest free piece {amount(self.largest_free)})"
        )

    def view(self) -> dict[str, int]:
        """As JSON."""
        return asdict(self)


def left_beside(session_file: Path) -> RefusedMemory | None:
    """The record that the program of this session file left; None where there is none, or none that can be read."""
    try:
        with session_file.with_name(session_file.name + REFUSED_SUFFIX).open("rb") as file:
            return RefusedMemory.parse(json.loads(file.read(_MOST_BYTES)))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class LargerShare:
    """A share with room for what was refused.

    Attributes:
        share: as people write it; empty: no device of the pool has so much.
        mib: its memory, of each device; of the largest share that there is where ``share`` is empty.
        free: it is to be had now, with what the program holds.
        count: devices, each with such a share.
    """

    share: str
    mib: int
    free: bool
    count: int = 1

    @classmethod
    def parse(cls, value: Mapping[str, Any] | None) -> Self | None:
        """From the JSON of :meth:`view`."""
        if value is None:
            return None
        return cls(str(value["share"] or ""), int(value["mib"]), bool(value["free"]), int(value["count"]))

    def view(self) -> dict[str, Any]:
        """As JSON; ``share`` null where no device has so much."""
        return {**asdict(self), "share": self.share or None}

    def words(self, way: str) -> str:
        """One sentence: ``%%gpu 0.5 (3.88 GiB) is free now.`` for the way ``%%gpu {}``."""
        memory = amount(self.mib * MIB)
        if not self.share:
            return f"No GPU of this pool has so much: the largest share is 1 ({memory})."
        # A program that is told to ask for one of several keeps asking for as many.
        several = f" of each of {self.count} GPUs" if self.count > 1 else ""
        said = f"{way.format(self.share)} ({memory}{several})"
        return f"{said} is free now." if self.free else f"{said} would have room, but is not free now."


def larger_share(
    refused: RefusedMemory, held: Sequence[GrantedShare], devices: Sequence[Device]
) -> LargerShare | None:
    """The smallest share with room for what was refused, and whether it is free beside what the program holds.

    What counts is memory and compute of healthy devices; quotas are not looked at. None: nothing is known of the pool.
    """
    usable = [device for device in devices if device.healthy]
    if not usable or not held:
        return None
    own = held[refused.device] if refused.device < len(held) else held[0]
    # What the driver's context takes is part of the share, and the program does not see it.
    reserve = max(0, own.mib * MIB - refused.share)
    needed = -(-(refused.needed + reserve) // MIB)
    holds = {share.device_id: share for share in held}
    # One share for all of them is written as compute, where that means the same memory on each.
    even = len({device.usable_mib for device in usable}) == 1

    def offer(device: Device) -> tuple[int, int] | None:
        """Compute and memory of the share on this device; None: it has not so much."""
        if not even:
            mib = min(-(-needed // STEP_MIB) * STEP_MIB, device.usable_mib)
            return (milli_of_mib(mib, device.usable_mib), mib) if mib >= needed else None
        for milli in range(STEP_MILLI, WHOLE_DEVICE_MILLI + 1, STEP_MILLI):
            if (mib := mib_of_milli(milli, device.usable_mib)) >= needed:
                return milli, mib
        return None

    def is_free(device: Device) -> bool:
        found = offer(device)
        if found is None:
            return False
        mine = holds.get(device.id)
        milli, mib = (mine.milli, mine.mib) if mine is not None else (0, 0)
        room = device.free_mib + device.movable_mib + mib
        return device.free_milli + milli >= found[0] and room >= found[1]

    able = [device for device in usable if offer(device) is not None]
    if len(able) < len(held):
        return LargerShare("", max(device.usable_mib for device in usable), False, len(held))
    # The devices that it has, if they are large enough: what is in their memory stays where it is.
    first = next((device for device in able if device.id == own.device_id), able[0])
    found = offer(first)
    assert found is not None
    share = format_milli(found[0]) if even else f"{found[1]}MiB"
    free = sum(is_free(device) for device in able) >= len(held)
    return LargerShare(share, found[1], free, len(held))
