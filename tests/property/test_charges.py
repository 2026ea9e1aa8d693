"""Whatever happens to a pool, what it charges is what leases took, for as long as they took it, and every report adds
up to that to the millisecond."""

from __future__ import annotations

from gpupool.ledger import schema
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant

from tests.property.test_pool_machine import PoolStory
from tests.support.charged_world import ChargedWorld


class ChargedStory(PoolStory):
    """The pool's whole life: asks, releases, resizes, gangs, lost nodes, killed pools."""

    World = ChargedWorld

    @invariant()
    def charges_are_what_leases_take(self) -> None:
        if hasattr(self, "world"):
            self.world.check_charges()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.check_charges()
            self._devices_were_there()
            assert +self.world.waits_in_ledger() == +self.world.waited
        super().teardown()

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
    max_examples=12, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
