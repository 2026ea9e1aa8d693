"""A pool world that keeps books of its own, beside the ledger: after each step it looks at what every lease takes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpupool.ledger import schema
from gpupool.ledger.waits import milli_asked
from gpupool.model import events
from gpupool.model.instructions import Instruction
from gpupool.pool.model.step import Step
from sqlalchemy import select

from tests.support.pool_world import PoolWorld

#: (lease, device, user, project, milli, mib)
Line = tuple[str, str, str, str, int, int]


@dataclass(frozen=True)
class Period:
    line: Line
    from_ms: int
    to_ms: int | None


class ChargedWorld(PoolWorld):
    """`held[line]`: integral of milli-GPU over milliseconds, added up between any two steps."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.open: dict[Line, int] = {}
        self.closed: list[Period] = []
        self.held: Counter[Line] = Counter()
        self.there: Counter[str] = Counter()
        #: user → integral of milli-GPU that waited.
        self.waited: Counter[str] = Counter()
        #: Times for which nothing was charged.
        self.gaps: set[tuple[int, int]] = set()
        self._booked_ms: int | None = None
        self._took: set[Line] = set()
        self._present: set[str] = set()
        self._waiting: Counter[str] = Counter()
        super().__init__(*args, **more)

    def handle(self, event: events.Event, *, lose_messages: bool = False) -> list[Instruction]:
        until = event.served_until if isinstance(event, events.Restarted) else None
        if until is not None:
            self._book_until(round(self._clock.to_unix(until) * 1000))
        done = super().handle(event, lose_messages=lose_messages)
        self._book()
        return done

    def deliver(self, step: Step) -> None:
        super().deliver(step)
        self._book()

    def crash(self, down: float = 0.0) -> None:
        """What waited until then is known up to the last moment that the pool wrote something."""
        super().crash(down)
        in_ledger = self.waits_in_ledger()
        assert in_ledger <= self.waited
        self.waited = in_ledger

    def waits_in_ledger(self) -> Counter[str]:
        waited: Counter[str] = Counter()
        for row in self.rows(schema.waits):
            until = self.now_ms if row["to_ms"] is None else row["to_ms"]
            waited[row["user"]] += row["milli"] * (until - row["from_ms"])
        return waited

    @property
    def now_ms(self) -> int:
        return round(self._clock.to_unix(self.now) * 1000)

    def _book_until(self, served: int) -> None:
        """The pool is back after a while, and nothing was charged from `served` on."""
        assert self._booked_ms is not None
        now = self.now_ms
        for line in self._took:
            self.held[line] += line[4] * (served - self._booked_ms)
            self.closed.append(Period(line, self.open[line], served))
            self.open[line] = now
            self.held[line] -= line[4] * (now - self._booked_ms)
        self.gaps.add((served, now))

    def _book(self) -> None:
        now = self.now_ms
        if self._booked_ms is not None:
            for line in self._took:
                self.held[line] += line[4] * (now - self._booked_ms)
            for device in self._present:
                self.there[device] += 1000 * (now - self._booked_ms)
            for user, milli in self._waiting.items():
                self.waited[user] += milli * (now - self._booked_ms)
        state = self.machine.state
        takes = {
            (lease.id, share.device_id, lease.user, lease.project, share.milli, share.mib)
            for lease in state.leases.values()
            if lease.holds
            for share in lease.taken()
        }
        for line in self._took - takes:
            self.closed.append(Period(line, self.open.pop(line), now))
        for line in takes - self._took:
            self.open[line] = now
        self._took, self._booked_ms = takes, now
        self._present = {
            device.id
            for device in state.devices.values()
            if device.present and device.node in state.nodes and not state.nodes[device.node].lost
        }

        self._waiting = Counter()
        for request in state.requests.values():
            self._waiting[request.user] += milli_asked(request, state.devices.values())

    def check_charges(self) -> None:
        """The rows are these books, lease by lease and device by device."""
        rows = self.rows(schema.charges)
        in_ledger = Counter(
            Period(
                (row["lease_id"], row["device_id"], row["user"], row["project"], row["milli"], row["mib"]),
                row["from_ms"],
                row["to_ms"],
            )
            for row in rows
        )
        open_now = [Period(line, since, None) for line, since in self.open.items()]
        assert in_ledger == Counter(self.closed) + Counter(open_now)
        self._check_devices(rows)
        self._check_time_of_leases(rows)

    def _check_devices(self, rows: list[Mapping[str, Any]]) -> None:
        taken: Counter[str] = Counter()
        for lease in self.machine.state.leases.values():
            if lease.holds:
                taken.update({share.device_id: share.milli for share in lease.taken()})
        charged: Counter[str] = Counter()
        for row in rows:
            if row["to_ms"] is None:
                charged[row["device_id"]] += row["milli"]
        assert charged == taken

    def _check_time_of_leases(self, rows: list[Mapping[str, Any]]) -> None:
        """Of each lease and device: from its grant to its end, each moment exactly once, but for those of no use."""
        periods: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
        for row in rows:
            periods.setdefault((row["lease_id"], row["device_id"]), []).append((row["from_ms"], row["to_ms"]))
        for (lease_id, _), times in periods.items():
            for (_, end), (begin, _) in itertools.pairwise(times):
                assert end == begin or (end, begin) in self.gaps, f"lease {lease_id}: {times}"
            lease = self.machine.state.leases.get(lease_id)
            if lease is not None:
                ended = None if lease.ended_at is None else round(self._clock.to_unix(lease.ended_at) * 1000)
                assert times[0][0] == round(self._clock.to_unix(lease.granted_at) * 1000)
                assert times[-1][1] == ended

    def rows(self, table: Any) -> list[Mapping[str, Any]]:
        assert self.ledger is not None
        with self.ledger.engine.connect() as connection:
            return list(connection.execute(select(table).order_by(table.c.number)).mappings())
