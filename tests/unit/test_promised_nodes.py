"""Nodes that a provider can bring: which requests wait for them, which start a job, and which are refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.filters import parse
from gpupool.ledger.ledger import Ledger
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.pool.growing.pool_side import PoolSide
from gpupool.pool.lifecycle.replay import replay
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.model.timers import Timers
from gpupool.providers.elasticity import Scale
from gpupool.providers.kinds import SettingsError
from gpupool.providers.offer import Offer, offer_of
from gpupool.providers.settings import read
from gpupool.scheduler import DeviceView, Outcome, PoolView, Request, decide
from gpupool.scheduler.model import Held
from gpupool.scheduler.pool_view import Promise

from tests.support.pool_world import offered

H100 = Promise("lab", 2, 81920, "slurm", "NVIDIA H100 80GB HBM3", {"zone": "a"})
SMALL = DeviceView("n/0", "n", 8192, kind="Tesla T4")
FULL = DeviceView("n/0", "n", 8192, kind="Tesla T4", held=(Held("l1", "bob", 1000, 7936),))


def asks(
    milli: int | None = 200,
    mib: int | None = None,
    count: int = 1,
    filters: tuple[str, ...] = (),
    pools: tuple[str, ...] = (),
    isolated: bool = True,
) -> Request:
    return Request(
        "ann", milli, mib, count, filters=tuple(map(parse, filters)), pools=pools, isolated=isolated
    )


class TestDecisions:
    @pytest.mark.parametrize(
        "request_",
        [
            asks(None, 40000),
            asks(500, count=2),
            asks(filters=("name=*H100*",)),
            asks(filters=("memory>=40GiB", "label.zone=a", "software=no")),
            asks(pools=("slurm",)),
        ],
        ids=["memory", "count", "type", "filters", "pool"],
    )
    def test_what_only_a_provider_can_serve_waits_for_it(self, request_: Request) -> None:
        assert decide(PoolView([SMALL]), request_).outcome is Outcome.REFUSE
        decision = decide(PoolView([SMALL], promised=(H100,)), request_)
        assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "no-node")
        assert decide(PoolView([SMALL], promised=(H100,)), request_, helps=False).said.code == "to-come"
        assert [help.action for help in decision.helps if help.action == "grow"] == ["grow"]

    @pytest.mark.parametrize(
        "request_",
        [
            asks(None, 100_000),
            asks(500, count=3),
            asks(filters=("name=*H1000*",)),
            asks(filters=("label.zone=b",)),
            asks(filters=("software=yes",)),
            asks(filters=("driver>=580",)),
            asks(pools=("other",)),
            asks(isolated=False),
        ],
        ids=["memory", "count", "type", "label", "software", "driver", "pool", "isolation"],
    )
    def test_what_nobody_can_serve_is_refused_at_once(self, request_: Request) -> None:
        decision = decide(PoolView([SMALL], promised=(H100,)), request_)
        assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "bad-share")

    def test_an_empty_pool_waits_for_what_can_come_and_refuses_the_rest(self) -> None:
        empty = PoolView([], promised=(H100,))
        assert decide(empty, asks()).said.code == "to-come"
        refused = decide(empty, asks(filters=("name=*A100*",)))
        assert (refused.outcome, refused.reason) == (Outcome.REFUSE, "bad-share")
        assert refused.said.code == "nobody-brings"
        nothing = decide(PoolView([]), asks(filters=("name=*A100*",)))
        assert (nothing.outcome, nothing.said.code) == (Outcome.QUEUE, "no-devices")

    def test_no_type_is_promised_unless_somebody_said_it(self) -> None:
        unknown = Promise("lab", 2, 81920)
        assert (
            decide(PoolView([SMALL], promised=(unknown,)), asks(filters=("name=*H100*",))).outcome
            is Outcome.REFUSE
        )

    def test_a_full_pool_says_that_it_can_grow(self) -> None:
        decision = decide(PoolView([FULL], promised=(H100,)), asks())
        assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "full")
        assert "grow" in [help.action for help in decision.helps]
        assert "grow" not in [help.action for help in decide(PoolView([FULL]), asks()).helps]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[PoolShell]:
    ledger = Ledger(tmp_path / "pool.sqlite", Clock(1_800_000_000.0))
    yield PoolShell(ledger, Clock.start(), Timers())
    ledger.close()


def arrives(pool: PoolShell, key: str, *filters: str, milli: int = 200) -> str:
    """A request that would wait; whether it does: `waits` or `refused`."""
    wishes = tuple(map(parse, filters))
    asked = events.Requested(pool.clock.now(), "ann", key, milli, None, 1, filters=wishes, wait=None)
    pool.apply(asked)
    return "waits" if any(request.key == key for request in pool.state.requests.values()) else "refused"


SCALES = {
    "lab": Scale(offer=Offer("NVIDIA H100 80GB HBM3")),
    "small": Scale(offer=Offer("Tesla T4")),
}


class TestThePool:
    def test_a_job_is_started_only_where_it_would_serve(self, pool: PoolShell) -> None:
        side = PoolSide(pool)
        side.promise(SCALES)
        assert arrives(pool, "k1", "name=*H100*") == "waits"
        assert arrives(pool, "k2") == "waits"
        assert [ask.unlike for ask in side.asks()] == [{"small"}, frozenset()]

    def test_what_is_promised_no_more_is_refused_from_then_on(self, pool: PoolShell) -> None:
        pool.apply(events.NodeHello(pool.clock.now(), "n1", 1, "run", (offered(0),)))
        side = PoolSide(pool)
        side.promise(SCALES)
        assert arrives(pool, "k1", "name=*H100*") == "waits"
        side.promise({"small": SCALES["small"]})
        assert arrives(pool, "k2", "name=*H100*") == "refused"

    def test_those_that_wait_for_it_wait_on_after_a_restart(self, pool: PoolShell) -> None:
        pool.apply(events.NodeHello(pool.clock.now(), "n1", 1, "run", (offered(0),)))
        PoolSide(pool).promise(SCALES)
        assert arrives(pool, "k1", "name=*H100*") == "waits"
        restarted = PoolShell(pool.ledger, Clock.start(), Timers())
        PoolSide(restarted).promise(SCALES)
        restarted.apply(events.Tick(restarted.clock.now() + restarted.timers.return_ + 1))
        assert [request.key for request in restarted.state.requests.values()] == ["k1"]

    def test_a_decision_made_again_counts_on_what_was_promised_then(self, pool: PoolShell) -> None:
        pool.apply(events.NodeHello(pool.clock.now(), "n1", 1, "run", (offered(0),)))
        assert arrives(pool, "k0", "name=*H100*") == "refused"
        refused = pool.ledger.last_step
        PoolSide(pool).promise(SCALES)
        assert arrives(pool, "k1", "name=*H100*") == "waits"
        waits = pool.ledger.last_step
        with pool.ledger.engine.connect() as connection:
            assert replay(connection, refused).same
            assert replay(connection, waits).same


class TestSettings:
    @pytest.mark.parametrize(
        ("options", "offer"),
        [
            ([], Offer("A100")),
            (["--label", "zone=a", "--label=rack=7=b"], Offer("A100", {"zone": "a", "rack": "7=b"})),
            (["--sharing", "open", "--warm-workers", "2"], Offer("A100", {}, "open")),
            (["--driver", "software"], Offer("A100", {}, "isolated", True)),
            (["--label"], Offer("A100")),
        ],
    )
    def test_an_offer_is_what_the_agents_are_started_with(self, options: list[str], offer: Offer) -> None:
        assert offer_of("A100", options) == offer

    def test_software_gpus_are_called_what_they_call_themselves(self) -> None:
        assert offer_of("", ["--driver=software"]).type == offered(0).name

    def test_the_file_says_the_type(self, tmp_path: Path) -> None:
        path = tmp_path / "providers.toml"
        path.write_text(
            '[lab]\nkind = "local"\ndevice_type = "NVIDIA H100"\nnode_options = ["--label", "a=b"]\n'
        )
        (settings,) = read(path)
        assert settings.scale.offer == Offer("NVIDIA H100", {"a": "b"})
        path.write_text('[lab]\nkind = "local"\ndevice_type = 3\n')
        with pytest.raises(SettingsError, match="device_type is '3'"):
            read(path)
