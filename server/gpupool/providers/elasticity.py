"""How many jobs of a provider there should be: a pure function of what waits and what there is.

Never more than what waits needs: shares are packed onto devices, and devices that are on their way already are counted before new
ones are asked for. While the engine lets a job wait, nothing more is asked of it. What nobody needs for a while goes back,
and is drained first, so that nobody is placed on a node that is about to go. A job in use whose time limit is near gets a
successor, unless what it serves fits elsewhere: its leases are counted like requests before its node is drained.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

from gpupool.providers.offer import Offer
from gpupool.sentences import Sentence, param, say
from gpupool.shares import WHOLE_DEVICE_MILLI

#: After so many seconds in the engine's queue a job says that the engine is full.
PENDING_PATIENCE: Final = 30.0
#: An expected start is said in steps of so many seconds: else it would be told anew each time.
_START_STEP: Final = 300.0
_FIRST_BACK_OFF: Final = 5.0
_LONGEST_BACK_OFF: Final = 300.0


@dataclass(frozen=True, slots=True)
class Scale:
    """What a provider may do.

    Attributes:
        minimum: jobs that are kept, whether somebody waits or not.
        maximum: jobs at most.
        idle: seconds after which a job that nobody needs is given back.
        devices: of one job.
        device_mib: memory that each of them has, at least; shares that are larger cannot be served.
        node_pool: that its nodes belong to.
        drain_before: a node is drained so many seconds before its time limit.
        replace_before: its successor is asked for so many seconds before that.
        start: seconds that an agent may take to connect once the engine says that its job runs.
        offer: what its devices are like.
    """

    minimum: int = 0
    maximum: int = 1
    idle: float = 600.0
    devices: int = 1
    device_mib: int = 8192
    node_pool: str = "default"
    drain_before: float = 600.0
    replace_before: float = 300.0
    start: float = 300.0
    offer: Offer = field(default_factory=Offer)

    @property
    def lead(self) -> float:
        """Seconds before its time limit at which a job gets a successor; one that lives no longer is of no use."""
        return self.drain_before + self.replace_before


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that waits because there is no room, or a lease that has to leave its node.

    `milli` or `mib`, as in `scheduler.model.Request`. `unlike`: providers whose devices are not what it asks for.
    """

    id: str
    milli: int | None
    mib: int | None
    count: int = 1
    pools: tuple[str, ...] = ()
    unlike: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Standing:
    """A job as it stands.

    Attributes:
        phase: as the ledger has it.
        engine: what the engine says: ``pending``, ``running``, ``ended``; empty: not asked yet.
        reason: in its words.
        since: when the engine began to say so.
        connected: its agent serves the pool, or has done so.
        settling: that has just begun: what waits for it may not have been granted yet.
        found: devices that its agent has; None: not known.
        busy: leases, or sessions whose memory is there.
        lost: its agent has been silent for so long that nothing is expected of it any more.
        drained: its node takes no new leases; of a job that was not drained for an end, an administrator said so.
        unneeded_since: since when nobody has needed it; None: somebody does.
        seconds_left: until its time limit; None: none is known.
        lifetime: the same when it began to run; None: not known.
        starts_in: seconds until the engine expects to start it; None: it does not say.
        never: the engine says that it will not start it, however long it waits.
        evicting: its leases were told to end.
        leases: that go on elsewhere when its node is drained.
        free: milli-GPU of each of its devices that nobody has; empty if it takes no new leases.
    """

    id: str
    phase: str
    engine: str
    since: float
    reason: str = ""
    devices: int = 1
    connected: bool = False
    settling: bool = False
    found: int | None = None
    busy: bool = False
    lost: bool = False
    drained: bool = False
    unneeded_since: float | None = None
    seconds_left: float | None = None
    lifetime: float | None = None
    starts_in: float | None = None
    never: bool = False
    evicting: bool = False
    leases: tuple[Ask, ...] = ()
    free: tuple[int, ...] = ()

    @property
    def coming(self) -> bool:
        """Its devices will be there, and are not yet."""
        there = self.connected and not self.settling
        return self.phase in ("intended", "submitted") and not there and self.engine != "ended"

    @property
    def kept(self) -> bool:
        """Whether it is one of the `minimum`: it serves who comes next, or soon does."""
        return self.phase in ("intended", "submitted") and not self.lost and not self.drained


@dataclass(frozen=True, slots=True)
class Trouble:
    """How the engine answers. `failures` in a row; nothing is asked for before `not_before`."""

    failures: int = 0
    not_before: float = 0.0
    problem: str = ""

    def failed(self, now: float, problem: str) -> Trouble:
        """After one failure more: each waits twice as long."""
        pause = min(_LONGEST_BACK_OFF, _FIRST_BACK_OFF * 2 ** min(self.failures, 10))
        return Trouble(self.failures + 1, now + pause, problem)


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that is to end, and why.

    Attributes:
        evict: its leases are told to go.
        failed: it was of no use from the start; the next may be no better.
        in_time: it ends soon, whether the engine answers or not.
    """

    job: str
    why: str
    evict: bool = False
    failed: bool = False
    in_time: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done now.

    Attributes:
        submit: so many jobs.
        drain: nodes that are to take no new leases.
        cancel: jobs that the engine is to end.
        needed: jobs that somebody waits for, or will go on in; also the nodes of `elsewhere` of which that is true.
        said: to whom of those that wait what is said.
        left: of `elsewhere`, and of jobs by their ids, the room that nobody counts on now.
        served: asks that a job on its way serves, or one of `submit`: no other provider is to do so.
    """

    submit: int = 0
    drain: tuple[Ending, ...] = ()
    cancel: tuple[Ending, ...] = ()
    needed: frozenset[str] = frozenset()
    said: dict[str, Sentence] = field(default_factory=dict)
    left: dict[str, tuple[int, ...]] = field(default_factory=dict)
    served: frozenset[str] = frozenset()


def plan(
    name: str,
    scale: Scale,
    jobs: Sequence[Standing],
    asks: Sequence[Ask],
    trouble: Trouble,
    now: float,
    elsewhere: Mapping[str, Sequence[int]] | None = None,
    counted_on: Collection[str] = (),
) -> Plan:
    """What provider `name` is to do about these jobs and asks.

    Args:
        name: the provider's.
        scale: what it may do.
        jobs: its jobs.
        asks: in the order in which they are served.
        trouble: how its engine answers.
        now: seconds of the pool's clock.
        elsewhere: nodes that are none of its jobs and stay: milli-GPU of each device that nobody has or counts on.
        counted_on: jobs in which leases of other providers' jobs are to go on.
    """
    mine = [ask for ask in asks if name not in ask.unlike and can_serve(scale, ask)]
    coming = [job for job in jobs if job.coming]
    leaving, there = _leaving(scale, jobs, elsewhere or {})
    # For requests there is no room: they would not wait.
    taken = [(node, list(free)) for node, free in there] if leaving else []
    packed = _pack(scale, coming, mine, leaving, taken)
    left = dict(there) | {node: tuple(free) for node, free in taken}
    needed = packed.needed.union(counted_on)
    drain, cancel = _endings(scale, jobs, needed, now)
    going = {ending.job for ending in cancel}
    alive = [job for job in jobs if job.phase != "over" and job.id not in going]
    stuck = next(
        (job for job in coming if job.engine == "pending" and now - job.since >= PENDING_PATIENCE), None
    )
    room = max(0, scale.maximum - len(alive))
    # Nodes that are on their way out or drained count against the maximum, but serve nobody.
    wanted = max(packed.more, scale.minimum - sum(job.kept for job in alive))
    submit = 0 if stuck is not None or now < trouble.not_before else max(0, min(wanted, room))
    said = {}
    for ask in mine:
        begun = packed.on.get(ask.id)
        said[ask.id] = _say(
            name, scale, next((j for j in coming if j.id == begun), None), stuck, trouble, room, now
        )
    # While its engine does not answer or lets a job wait for ever, others may be quicker.
    on = {} if stuck is not None or trouble.failures else packed.on
    served = frozenset(on).union(name for name, number in packed.on_new.items() if number < submit)
    return Plan(submit, drain, cancel, needed, said, left, served)


def can_serve(scale: Scale, ask: Ask) -> bool:
    """Whether a job's devices are large enough for it, as many as it asks for, and in its node pool."""
    fits = ask.mib is None or ask.mib <= scale.device_mib
    return fits and ask.count <= scale.devices and (not ask.pools or scale.node_pool in ask.pools)


#: A job, or the number of a new one, and milli-GPU that are free on each of its devices.
_Bin: TypeAlias = tuple[str | int, list[int]]


@dataclass(frozen=True, slots=True)
class _Packed:
    more: int
    needed: frozenset[str]
    on: dict[str, str]
    on_new: dict[str, int]  # by the number of the new job


def _leaving(
    scale: Scale, jobs: Sequence[Standing], elsewhere: Mapping[str, Sequence[int]]
) -> tuple[list[Ask], list[tuple[str, tuple[int, ...]]]]:
    """Leases that soon have to go on elsewhere, and the room that there is for them already."""
    leases = [
        lease for job in jobs if _ends_soon(scale, job) for lease in job.leases if can_serve(scale, lease)
    ]
    room = [(node, tuple(free)) for node, free in elsewhere.items()]
    return leases, room + [(job.id, job.free) for job in jobs if job.free and stays(scale, job)]


def stays(scale: Scale, job: Standing) -> bool:
    """Whether sessions that have to leave another node may go on in it."""
    return job.phase == "submitted" and not _ends_soon(scale, job)


def _ends_soon(scale: Scale, job: Standing) -> bool:
    left = job.seconds_left
    return left is not None and job.phase in ("submitted", "draining") and left <= scale.lead


def _pack(
    scale: Scale,
    coming: Sequence[Standing],
    asks: Sequence[Ask],
    leases: Sequence[Ask],
    room: Sequence[tuple[str, list[int]]],
) -> _Packed:
    """Puts leases where there is room, and leases and requests onto devices that are on their way, then onto new jobs."""
    bins: list[_Bin] = [(job.id, [WHOLE_DEVICE_MILLI] * job.devices) for job in coming]
    more, needed, on = 0, set(), {}
    on_new: dict[str, int] = {}
    for ask, there in [*((lease, room) for lease in leases), *((ask, ()) for ask in asks)]:
        size = max(1, ask.milli or -(-WHOLE_DEVICE_MILLI * (ask.mib or 0) // scale.device_mib))
        if not (found := _first_fit(chain(there, bins), size, ask.count)):
            bins.append((more, [WHOLE_DEVICE_MILLI] * scale.devices))
            more += 1
            found = _first_fit(bins[-1:], size, ask.count)
        assert found is not None
        job, free, places = found
        for place in places:
            free[place] -= size
        if isinstance(job, int):
            on_new[ask.id] = job
        else:
            needed.add(job)
            on[ask.id] = job
    return _Packed(more, frozenset(needed), on, on_new)


def _first_fit(bins: Iterable[_Bin], size: int, count: int) -> tuple[str | int, list[int], list[int]] | None:
    """The first job with so much room on so many devices, what is free on each, and which they are."""
    for job, free in bins:
        places = [index for index, left in enumerate(free) if left >= size][:count]
        if len(places) == count:
            return job, free, places
    return None


def _endings(
    scale: Scale, jobs: Sequence[Standing], needed: frozenset[str], now: float
) -> tuple[tuple[Ending, ...], tuple[Ending, ...]]:
    drain: list[Ending] = []
    cancel: list[Ending] = []
    staying = sum(job.kept and job.engine != "ended" for job in jobs)
    # Of most jobs nothing is to be said; those are not put in order.
    concerned = [job for job in jobs if _may_end(scale, job, needed, now)]
    for job in sorted(concerned, key=lambda job: (job.connected, job.id)):
        wrong = _wrong(scale, job, now)
        if job.phase == "draining":
            if not job.busy:
                cancel.append(Ending(job.id, "it serves nobody any more"))
            elif not job.evicting and _time_is_up(scale, job):
                drain.append(Ending(job.id, _why_now(job), evict=True, in_time=True))
        elif wrong and job.busy:
            drain.append(Ending(job.id, wrong, evict=True))
        elif wrong:
            cancel.append(Ending(job.id, wrong, failed=True))
        elif _time_is_up(scale, job):
            drain.append(Ending(job.id, _why_now(job), evict=True, in_time=True))
        elif (not job.kept or staying > scale.minimum) and _is_idle(scale, job, needed, now):
            ending = Ending(job.id, f"nobody needed it for {scale.idle:g} s")
            (drain if job.connected else cancel).append(ending)
        else:
            continue
        staying -= job.kept
    return tuple(drain), tuple(cancel)


def _may_end(scale: Scale, job: Standing, needed: frozenset[str], now: float) -> bool:
    """Whether there may be a reason to drain or to end it."""
    if job.phase in ("cancelling", "over") or job.engine == "ended":
        return False
    return (
        job.phase == "draining"
        or _is_idle(scale, job, needed, now)
        or _time_is_up(scale, job)
        or bool(_wrong(scale, job, now))
    )


def _is_idle(scale: Scale, job: Standing, needed: frozenset[str], now: float) -> bool:
    """Whether nobody has needed it for long."""
    return (
        job.unneeded_since is not None
        and now - job.unneeded_since >= scale.idle
        and not job.busy
        and job.id not in needed
    )


def _time_is_up(scale: Scale, job: Standing) -> bool:
    return job.seconds_left is not None and job.connected and job.seconds_left <= scale.drain_before


def _why_now(job: Standing) -> str:
    """A running job of which the engine says something is one that it takes back."""
    return f"the engine takes it back: {job.reason}" if job.reason else "its time limit is near"


def _wrong(scale: Scale, job: Standing, now: float) -> str:
    """Why a job is of no use; empty: nothing is wrong."""
    if job.found is not None and job.found != job.devices:
        return f"its agent has {job.found} device(s), and the engine was asked for {job.devices}"
    if job.engine == "running" and not job.connected and now - job.since >= scale.start:
        return f"its agent did not connect within {scale.start:g} s"
    if job.never and job.engine == "pending" and now - job.since >= PENDING_PATIENCE:
        # It would keep its place for ever, and with it all who wait for this provider.
        return f"the engine never starts it: {job.reason}"
    if job.lifetime is not None and job.lifetime <= scale.lead:
        return f"its time limit of {job.lifetime:.0f} s is no longer than drain_before and replace_before, {scale.lead:g} s"
    return ""


def _say(
    name: str,
    scale: Scale,
    job: Standing | None,
    stuck: Standing | None,
    trouble: Trouble,
    room: int,
    now: float,
) -> Sentence:
    """What whoever waits is told. How long something has lasted is left out: it would be told anew each time."""
    provider = param.text(name)
    if job is not None and job.engine == "running":
        return say("provider.starting", provider=provider)
    waits = job if job is not None and job.engine == "pending" else stuck
    if waits is not None:
        why = param.text(waits.reason or "no reason")
        if waits.starts_in is None:
            return say("provider.pending", provider=provider, why=why)
        soon = _START_STEP * max(1, math.ceil(waits.starts_in / _START_STEP))
        return say("provider.pending-until", provider=provider, why=why, seconds=param.seconds(soon))
    if job is None and now < trouble.not_before:
        return say("provider.trouble", provider=provider, why=param.text(trouble.problem))
    if job is None and room == 0:
        return say("provider.at-maximum", provider=provider, count=param.count(scale.maximum))
    return say("provider.asked", provider=provider)
