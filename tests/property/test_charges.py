"""Whatever happens to a pool, what it charges is what leases took, for as long as they took it, and every report adds
up to that to the millisecond."""

from __future__ import annotations

import itertools
from collections import Counter

from gpupool.ledger import schema, usage
from gpupool.ledger.snapshot import snapshot
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant

from tests.property.test_pool_machine import PoolStory
from tests.support.charged_world import ChargedWorld


class ChargedStory(PoolStory):
    """The pool's whole life: asks, releases, resizes, gangs, lost nodes, killed pools."""

    world_class = ChargedWorld

    @invariant()
    def charges_are_what_leases_take(self) -> None:
        if hasattr(self, "world"):
            self.world.check_charges()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.check_charges()
            self._devices_were_there()
            self._every_report_adds_up()
            assert +self.world.waits_in_ledger() == +self.world.waited
        super().teardown()

    def _every_report_adds_up(self) -> None:
        """However it is grouped, and however the time is cut."""
        world = self.world
        held = sum(world.held.values())
        begin, now = 0, world.now_ms
        with snapshot(world.ledger.engine) as connection:
            for size in range(4):
                for by in itertools.combinations(("user", "project", "device", "node", "hour"), size):
                    rows = usage.used(connection, usage.Selection(begin, now, by), now)
                    assert usage.total(rows)[0] == held
            cuts = [begin, *sorted({row["from_ms"] + 777 for row in world.rows(schema.charges)}), now + 10**9]
            parts = [
                usage.total(usage.used(connection, usage.Selection(since, until), now))[0]
                for since, until in itertools.pairwise(cuts)
                if since < until
            ]
            assert sum(parts) == held
            by_user: Counter[str] = Counter()
            for line, time in world.held.items():
                by_user[line[2]] += time
            rows = usage.used(connection, usage.Selection(begin, now, ("user",)), now)
            assert {row.user: row.milli_ms for row in rows} == {
                user: time for user, time in by_user.items() if time
            } | {row.user: 0 for row in rows if not row.milli_ms}

    def _devices_were_there(self) -> None:
        """Each device counts while its node offers it, once."""
        there = {}
        for row in self.world.rows(schema.capacity):
            until = self.world.now_ms if row["to_ms"] is None else row["to_ms"]
            assert until >= row["from_ms"]
            there[row["device_id"]] = there.get(row["device_id"], 0) + row["milli"] * (until - row["from_ms"])
        assert there == {device: time for device, time in self.world.there.items() if device in there}
        assert all(time == 0 for device, time in self.world.there.items() if device not in there)


TestChargedStory = ChargedStory.TestCase
TestChargedStory.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
