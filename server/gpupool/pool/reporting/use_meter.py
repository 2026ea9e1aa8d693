"""What sessions used, minute by minute, from the counters that nodes report. Pure: looked at with the time passed in.

Counters are sums since a session's start. What lies between two reports is spread evenly over the time between them;
device time and bytes of a session on several devices of a node evenly over these. Memory counts as it is at each look,
for the time since the look before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpupool.model.history_amounts import MINUTE_MS, Amounts, Subject
from gpupool.model.state import SessionRecord, State, Usage

_MIB: Final = 1 << 20

#: What was used in one minute.
Bucket = dict[Subject, Amounts]


@dataclass(slots=True)
class _Report:
    """The last report of a session. `usage` None: it began before the meter, and has not reported since."""

    usage: Usage | None
    at_ms: int


class UseMeter:
    """Follows the sessions of one state.

    Args:
        state: sessions that are in it already count from their next report on.
        now_ms: wall-clock milliseconds.
    """

    def __init__(self, state: State, now_ms: int) -> None:
        self._looked_ms = now_ms
        self._open_ms = now_ms
        self._reports = {
            session.id: _Report(session.usage if session.usage != Usage() else None, now_ms)
            for session in state.sessions.values()
        }
        self._buckets: dict[int, Bucket] = {}

    def look(self, state: State, now_ms: int) -> None:
        """Counts what was reported since the last look. To be called every few seconds, between two steps."""
        since, self._looked_ms = self._looked_ms, max(now_ms, self._looked_ms)
        for session in state.sessions.values():
            self._memory(session, since, now_ms)
            self._counters(session, now_ms)
        for gone in self._reports.keys() - state.sessions.keys():
            del self._reports[gone]

    def until(self, before_ms: int) -> Bucket:
        """What was used before a moment that is a minute's end, or now; it is forgotten here."""
        self._open_ms = max(self._open_ms, before_ms)
        taken: Bucket = {}
        for minute in [minute for minute in self._buckets if minute < before_ms]:
            merge(taken, self._buckets.pop(minute))
        return taken

    def between(self, from_ms: int, to_ms: int) -> Bucket:
        """What was used in the minutes that begin within a time; it stays counted."""
        found: Bucket = {}
        for minute, bucket in self._buckets.items():
            if from_ms // MINUTE_MS * MINUTE_MS <= minute < to_ms:
                merge(found, bucket)
        return found

    def give_back(self, minute_ms: int, bucket: Bucket) -> None:
        """Counts again what :meth:`until` gave and could not be stored."""
        merge(self._buckets.setdefault(minute_ms // MINUTE_MS * MINUTE_MS, {}), bucket)

    # ---- one session

    def _memory(self, session: SessionRecord, since: int, now: int) -> None:
        if since >= now or session.place != "device" or session.worker_gone or session.state == "lost":
            return
        for device, used in zip(session.device_ids, session.usage.memory_used, strict=False):
            mib = -(-used // _MIB)
            if mib > 0:
                for minute, length in self._minutes(since, now):
                    self._add(minute, _subject(session, device), Amounts(memory_mib_ms=mib * length))

    def _counters(self, session: SessionRecord, now: int) -> None:
        last = self._reports.get(session.id)
        if last is None:
            last = self._reports[session.id] = _Report(Usage(), now)
        usage = session.usage
        if usage is last.usage or usage == last.usage or (last.usage is None and not _counted(usage)):
            return
        if last.usage is not None:
            self._spread(session, _difference(last.usage, usage), last.at_ms, now)
        self._reports[session.id] = _Report(usage, now)

    def _spread(self, session: SessionRecord, used: Amounts, since: int, now: int) -> None:
        if not used or not session.device_ids:
            return
        minutes = list(self._minutes(since, now))
        parts = [(minute, device, length) for minute, length in minutes for device in session.device_ids]
        whole = sum(length for _, _, length in parts)
        done, given = 0, Amounts()
        for minute, device, length in parts:
            done += length
            upto = _part(used, done, whole)
            self._add(minute, _subject(session, device), _less(upto, given))
            given = upto

    def _minutes(self, since: int, now: int) -> Iterator[tuple[int, int]]:
        """(minute, milliseconds of it) within a time; what belongs to minutes that were given away counts in the first after."""
        at = max(since, self._open_ms)
        if at >= now:
            yield max(now, self._open_ms) // MINUTE_MS * MINUTE_MS, max(1, now - since)
            return
        early = at - since
        while at < now:
            minute = at // MINUTE_MS * MINUTE_MS
            end = min(minute + MINUTE_MS, now)
            yield minute, end - at + max(0, early)
            at, early = end, 0

    def _add(self, minute: int, subject: Subject, amounts: Amounts) -> None:
        merge(self._buckets.setdefault(minute, {}), {subject: amounts})


def _counted(usage: Usage) -> bool:
    """Whether a worker said it. What the pool remembers of a session after its own restart has no counters."""
    return bool(usage.device_seconds or usage.bytes_to_device or usage.bytes_from_device or usage.calls)


def merge(into: Bucket, other: Mapping[Subject, Amounts]) -> None:
    """Adds what is in `other` to `into`."""
    for subject, amounts in other.items():
        into[subject] = into[subject] + amounts if subject in into else amounts


def _subject(session: SessionRecord, device: str) -> Subject:
    return Subject(device, session.user, session.project, session.id)


def _difference(before: Usage, after: Usage) -> Amounts:
    """What was used between two reports; a counter that fell began anew."""

    def grew(old: int, new: int) -> int:
        return new - old if new >= old else new

    return Amounts(
        used_milli_ms=grew(_milli_ms(before.device_seconds), _milli_ms(after.device_seconds)),
        to_device_bytes=grew(before.bytes_to_device, after.bytes_to_device),
        from_device_bytes=grew(before.bytes_from_device, after.bytes_from_device),
    )


def _milli_ms(device_seconds: float) -> int:
    return round(device_seconds * 1_000_000)


def _part(used: Amounts, done: int, whole: int) -> Amounts:
    return replace(
        used,
        used_milli_ms=used.used_milli_ms * done // whole,
        to_device_bytes=used.to_device_bytes * done // whole,
        from_device_bytes=used.from_device_bytes * done // whole,
    )


def _less(upto: Amounts, given: Amounts) -> Amounts:
    return replace(
        upto,
        used_milli_ms=upto.used_milli_ms - given.used_milli_ms,
        to_device_bytes=upto.to_device_bytes - given.to_device_bytes,
        from_device_bytes=upto.from_device_bytes - given.from_device_bytes,
    )
