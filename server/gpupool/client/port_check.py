"""Tries from this machine which ports of a node's workers can be reached: a firewall may let only some through.

The node listens at the ports while they are tried (:mod:`gpupool.node.doors`), so one that cannot be reached is closed
on the way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

#: A port that does not answer within this time is closed, seconds.
ANSWER_SECONDS: Final = 1.5
#: Parts that are tried, at most.
MOST_PARTS: Final = 4
_LATER_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class OpenPorts:
    """A part of a node's ports, open now.

    Attributes:
        host: where kernels dial it.
        first, last: its range, both included.
        ports: at which it listens.
        taken: that something else has, a worker most likely.
        parts: how many parts there are.
        seconds: ports that nobody reaches are open for so long; no other part opens meanwhile.
    """

    host: str
    first: int
    last: int
    ports: tuple[int, ...]
    taken: tuple[int, ...]
    parts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PortReport:
    """What was found out.

    Attributes:
        closed: ports at which the node listened, and which could not be reached from here.
        open: how many could.
        untried: how many were not: something else has them that does not listen, or the range is too large for a moment.
    """

    first: int
    last: int
    closed: tuple[int, ...]
    open: int
    untried: int

    @property
    def closed_text(self) -> str:
        """Such as ``40003-40005, 40010``."""
        return ranges(self.closed)


async def check_ports(
    open_part: Callable[[int], Awaitable[OpenPorts]], *, most_parts: int = MOST_PARTS
) -> PortReport:
    """Tries the ports of a node.

    Args:
        open_part: opens a part, by its number; each is spread over the whole range.
        most_parts: so many at most.

    Raises:
        PoolRefusedError, PoolUnavailableError: what `open_part` raises.
    """
    closed: list[int] = []
    reached = 0
    part, parts = 0, 1
    while part < min(parts, most_parts):
        began = time.monotonic()
        opened = await open_part(part)
        part, parts = part + 1, opened.parts
        answers = await asyncio.gather(*(_answers(opened.host, port) for port in opened.ports + opened.taken))
        said = dict(zip(opened.ports + opened.taken, answers, strict=True))
        reached += sum(answers)
        here = [port for port in opened.ports if not said[port]]
        closed += here
        if here and part < min(parts, most_parts):
            # They are closed on the way, and open at the node until their time is over.
            await asyncio.sleep(max(0.0, opened.seconds + _LATER_SECONDS - (time.monotonic() - began)))
    tried = reached + len(closed)
    return PortReport(
        opened.first, opened.last, tuple(sorted(closed)), reached, opened.last - opened.first + 1 - tried
    )


async def _answers(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order, neighbours together."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
