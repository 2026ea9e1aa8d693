"""What to say to somebody whose program waits for the GPU most of the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpupool.client.runtime import Counters

#: Fewer round trips than this, or less waiting, are nobody's problem.
_LEAST_COUNT: Final = 50
_LEAST_SECONDS: Final = 0.1
#: One call dominates when it has this part of the round trips, or of the time spent waiting.
_DOMINATES: Final = 0.6

_COPY: Final = "cuMemcpyDtoH_v2"
_SYNCHRONIZE: Final = ("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize")
_QUERY: Final = ("cuEventQuery", "cuStreamQuery")
_LOAD: Final = ("cuModuleLoadData", "cuModuleGetFunction", "cuLinkAddData_v2", "cuLinkComplete")


def hint(before: Counters, after: Counters, wall_seconds: float) -> str | None:
    """One sentence when one kind of call makes the program wait, else None.

    Args:
        before: a reading of the counters.
        after: a later one.
        wall_seconds: the time between them.
    """
    asks = _difference(before.asks_by_name, after.asks_by_name)
    count = sum(n for n, _ in asks.values())
    seconds = sum(s for _, s in asks.values())
    if count < _LEAST_COUNT or seconds < max(_LEAST_SECONDS, 0.1 * wall_seconds):
        return None
    name, (often, waited) = max(asks.items(), key=lambda item: (item[1][1], item[1][0]))
    if waited < _DOMINATES * seconds and often < _DOMINATES * count:
        return None
    small = _at(after.copies_to_host, 0) - _at(before.copies_to_host, 0)
    return _sentence(name, often, waited, small)


def _sentence(name: str, often: int, waited: float, small: int) -> str:
    counted = f"{often:,} × {name.removesuffix('_v2')} ({waited:.2g} s)"
    # PyTorch's .item() copies to pinned memory and waits for the stream.
    if (name == _COPY or name in _SYNCHRONIZE) and small >= _DOMINATES * often:
        return (
            f"{small:,} copies of at most 16 bytes to the host ({waited:.2g} s): .item(), float() or print() in a loop? "
            "Each waits for the GPU; keep values on the GPU and read them once."
        )
    if name == _COPY:
        return f"{counted}: each copy to the host waits for the GPU; fewer and larger copies are faster."
    if name in _SYNCHRONIZE:
        return f"{counted}: each waits for the GPU; synchronize once, at the end."
    if name in _QUERY:
        return f"{counted}: asking again and again whether work is done; synchronize instead of polling."
    if name in _LOAD:
        return f"{counted}: kernels used for the first time; the next run has them."
    return f"{counted}: each waits for the GPU."


def _difference(
    before: Mapping[str, tuple[int, float]], after: Mapping[str, tuple[int, float]]
) -> dict[str, tuple[int, float]]:
    found = {}
    for name, (count, seconds) in after.items():
        then, then_seconds = before.get(name, (0, 0.0))
        if count > then:
            found[name] = (count - then, max(0.0, seconds - then_seconds))
    return found


def _at(counts: tuple[int, ...], index: int) -> int:
    return counts[index] if index < len(counts) else 0
