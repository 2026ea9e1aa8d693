"""The idle ladder looked at each second, whatever users, cells and the GPU do in between."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpupool.server.watching.idle import IdleLimits, IdlePolicy, Rung, Signals, climb

LIMITS = st.builds(
    IdleLimits,
    default_seconds=st.integers(0, 12),
    warn_seconds=st.integers(0, 6),
    most_seconds=st.integers(0, 15),
    never_allowed=st.booleans(),
)
#: Something begins or ends, Keep for so many seconds, an own choice, or other limits.
HAPPENS = st.one_of(
    st.sampled_from(["a cell", "work"]),
    st.sampled_from(["cell begins", "cell ends", "work begins", "work ends", "held up"]),
    st.tuples(st.just("keep"), st.integers(0, 8)),
    st.tuples(st.just("choose"), st.one_of(st.none(), st.integers(0, 20))),
    st.tuples(st.just("limits"), LIMITS),
)


@dataclass
class World:
    """What :class:`jupyter_gpupool.server.watching.watch.Watch` keeps of one lease, and what really happened."""

    limits: IdleLimits
    signals: Signals
    choice: float | None = None
    submitted_at: float = 0.0
    in_use_at: float = 0.0
    warned_since: float | None = None

    def happen(self, what: object) -> None:
        now = self.signals.now
        match what:
            case "cell begins" | "cell ends":
                ended = now if self.signals.cell_running else self.signals.last_cell_at
                running = what == "cell begins"
                self.signals = replace(self.signals, cell_running=running, last_cell_at=ended)
            case "work begins":
                self.submitted_at = now
                self.signals = replace(self.signals, gpu_in_flight=True)
            case "work ends":
                self.signals = replace(self.signals, gpu_in_flight=False)
            case "held up":
                self.signals = replace(self.signals, now=now + 30)
            case ("keep", int(seconds)):
                self.keep(seconds)
            case ("choose", None | int() as choice):
                self.choice = choice
                self.keep(self.limits.warn_seconds)
            case ("limits", IdleLimits() as limits):
                self.limits = limits

    def keep(self, seconds: float) -> None:
        kept = max(self.signals.kept_until, self.signals.now + seconds)
        self.signals = replace(self.signals, kept_until=kept)
        self.warned_since = None

    def look(self) -> tuple[Rung, IdlePolicy]:
        policy = self.limits.policy(self.choice)
        # Told by the node: since it was submitted, not since it ended.
        self.signals = replace(self.signals, gpu_idle_seconds=self.signals.now - self.submitted_at)
        if self.signals.cell_running or self.signals.gpu_in_flight:
            self.in_use_at = self.signals.now
        verdict, kept_until = climb(policy, self.signals, warned=self.warned_since is not None)
        seen = self.signals.last_work_at if verdict.gpu_seconds else self.signals.now
        self.signals = replace(self.signals, kept_until=kept_until, last_work_at=seen)
        if verdict.rung is not Rung.WARNED and verdict.rung is not Rung.RELEASE:
            self.warned_since = None
        elif self.warned_since is None:
            self.warned_since = self.signals.now
        return verdict.rung, policy


@settings(deadline=None)
@given(LIMITS, st.lists(st.tuples(HAPPENS, st.integers(0, 14)), max_size=12))
def test_nobody_loses_a_gpu_in_use_or_unwarned(limits: IdleLimits, story: list[tuple[object, int]]) -> None:
    start = Signals(
        now=100,
        attached_at=100,
        cell_running=False,
        last_cell_at=0,
        gpu_idle_seconds=None,
        gpu_in_flight=False,
    )
    world = World(limits, start)
    seconds: list[object] = []
    for what, length in story:
        quiet = ["nothing"] * length
        match what:
            case "a cell" | "work":
                word = str(what).removeprefix("a ")
                seconds += [f"{word} begins", *quiet, f"{word} ends"]
            case _:
                seconds += [what, *quiet]
    for what in [*seconds, *["nothing"] * 40]:
        kept_until = world.signals.kept_until
        world.happen(what)
        world.signals = replace(world.signals, now=world.signals.now + 1)
        before = world.warned_since
        rung, policy = world.look()
        if rung is not Rung.RELEASE:
            continue
        now = world.signals.now
        assert not world.signals.cell_running
        assert not world.signals.gpu_in_flight
        assert policy.idle_seconds > 0
        assert now >= kept_until
        assert now - world.in_use_at >= min(policy.idle_seconds, world.limits.longest)
        if world.limits.warn_seconds > 0:
            assert before is not None, "released without a warning"
        return
    policy = world.limits.policy(world.choice)
    if policy.idle_seconds > 0 and not world.signals.cell_running and not world.signals.gpu_in_flight:
        raise AssertionError("kept for ever although nothing used it for 40 s")


@settings(deadline=None)
@given(LIMITS, st.one_of(st.none(), st.integers(0, 40)))
def test_no_choice_goes_beyond_what_is_allowed(limits: IdleLimits, choice: float | None) -> None:
    seconds = limits.policy(choice).idle_seconds
    assert 0 <= seconds <= limits.longest
    if seconds == 0:
        assert limits.never
