"""Whose memory leaves a device when a request needs the room.

Parked memory is moved only for a request that fits by it: compute is free, quotas allow it, and nothing but memory
of parked sessions is in the way. Of all choices that make room the one with the fewest bytes is taken, because
each byte is copied twice: away now, back when its session resumes. Among equals those go that have been parked
the longest: who came back lately comes back soon. A session moves whole, so what it keeps on other devices counts
as well. What is on its way already is waited for before anybody else is told to move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from gpupool.scheduler.model import DeviceView, Held, PlacedShare

#: Up to this many parked sessions of a device every choice is tried; beyond, a good one is found.
_EXACT = 12


@dataclass(frozen=True, slots=True)
class Eviction:
    """What makes room on some devices.

    Attributes:
        victims: sessions to be told to move; those that are leaving already are not among them.
        leaving: sessions whose leaving is waited for.
    """

    victims: tuple[Held, ...] = ()
    leaving: tuple[Held, ...] = ()

    @property
    def mib(self) -> int:
        """What has still to be told to move: the cost of choosing this."""
        return sum(held.session_mib for held in self.victims)

    @property
    def sessions(self) -> tuple[str, ...]:
        return tuple(held.session_id for held in (*self.leaving, *self.victims))


def make_room(wanted: Sequence[tuple[DeviceView, PlacedShare]], host_room: int) -> Eviction | None:
    """What must leave so that each share fits on its device; None: no eviction makes them fit.

    Args:
        wanted: devices of one node with the shares that are wanted there.
        host_room: MiB of host memory that this node may still take.
    """
    victims: dict[str, Held] = {}
    leaving: dict[str, Held] = {}
    for device, placed in wanted:
        if not device.healthy or placed.milli > device.free_milli:
            return None
        missing = placed.mib - device.free_mib
        for held in device.held:
            if missing > 0 and (held.leaving or held.session_id in victims):
                missing -= held.mib
                if held.leaving:
                    leaving[held.session_id] = held
        if missing <= 0:
            continue
        candidates = [held for held in device.held if held.movable and held.session_id not in victims]
        room = host_room - sum(held.session_mib for held in victims.values())
        chosen = _fewest(candidates, missing, room)
        if chosen is None:
            return None
        victims |= {held.session_id: held for held in chosen}
    return Eviction(tuple(victims.values()), tuple(leaving.values()))


def _fewest(candidates: Sequence[Held], missing: int, room: int) -> tuple[Held, ...] | None:
    """The choice with the fewest bytes that frees `missing` MiB of the device and goes into `room`."""
    longest = sorted(candidates, key=lambda held: (held.since, held.session_id))
    if len(longest) > _EXACT:
        return _good(longest, missing, room)
    best: tuple[int, tuple[int, ...]] | None = None
    for size in range(1, len(longest) + 1):
        for places in combinations(range(len(longest)), size):
            chosen = [longest[place] for place in places]
            cost = sum(held.session_mib for held in chosen)
            enough = sum(held.mib for held in chosen) >= missing
            if enough and cost <= room and (best is None or (cost, places) < best):
                best = (cost, places)
    return None if best is None else tuple(longest[place] for place in best[1])


def _good(longest: Sequence[Held], missing: int, room: int) -> tuple[Held, ...] | None:
    """One session if one is enough, the smallest such; else the longest parked ones, none of them in vain."""
    single = [held for held in longest if held.mib >= missing and held.session_mib <= room]
    if single:
        return (min(single, key=lambda held: held.session_mib),)
    chosen: list[Held] = []
    for held in longest:
        if sum(h.mib for h in chosen) >= missing:
            break
        if sum(h.session_mib for h in chosen) + held.session_mib <= room:
            chosen.append(held)
    if sum(h.mib for h in chosen) < missing:
        return None
    for held in sorted(chosen, key=lambda h: h.session_mib, reverse=True):
        if sum(h.mib for h in chosen) - held.mib >= missing:
            chosen.remove(held)
    return tuple(chosen)
