"""How many jobs of a provider there should be: what holds for any queue and any jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpupool.providers.elasticity import Ask, Plan, Scale, Standing, Trouble, can_serve, plan
from hypothesis import given
from hypothesis import strategies as st

NOW = 10_000.0

scales = st.builds(
    lambda minimum, more, **rest: Scale(minimum=minimum, maximum=minimum + more, **rest),
    minimum=st.integers(0, 3),
    more=st.integers(0, 5),
    idle=st.sampled_from([0.0, 60.0]),
    devices=st.integers(1, 4),
    device_mib=st.sampled_from([8192, 81920]),
)
asks = st.lists(
    st.builds(
        lambda milli, mib, count: (milli, mib, count),
        st.integers(1, 1000),
        st.none() | st.integers(1, 100_000),
        st.integers(1, 4),
    ),
    max_size=12,
).map(
    lambda rows: [
        Ask(f"a{index}", None if mib else milli, mib, count) for index, (milli, mib, count) in enumerate(rows)
    ]
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Scale, list[Standing], list[Ask]]:
    scale = draw(scales)
    jobs = []
    for index in range(draw(st.integers(0, 8))):
        connected = draw(st.booleans())
        unneeded = draw(st.none() | st.floats(0, 500))
        jobs.append(
            Standing(
                id=f"j{index}",
                phase=draw(st.sampled_from(["intended", "submitted", "draining", "cancelling", "over"])),
                engine="running" if connected else draw(st.sampled_from(["", "pending", "running", "ended"])),
                since=NOW - draw(st.floats(0, 1000)),
                devices=scale.devices,
                connected=connected,
                found=draw(st.sampled_from([scale.devices, scale.devices, scale.devices + 1]))
                if connected
                else None,
                busy=connected and draw(st.booleans()),
                unneeded_since=None if unneeded is None else NOW - unneeded,
                seconds_left=draw(st.none() | st.floats(0, 5000)),
                evicting=draw(st.booleans()),
            )
        )
    return scale, jobs, draw(asks)


def decided(
    scale: Scale, jobs: Sequence[Standing], waiting: Sequence[Ask], trouble: Trouble | None = None
) -> Plan:
    return plan("lab", scale, jobs, waiting, trouble or Trouble(), NOW)


@given(worlds())
def test_never_above_the_maximum_and_never_more_than_is_asked(
    world: tuple[Scale, list[Standing], list[Ask]],
) -> None:
    scale, jobs, waiting = world
    found = decided(scale, jobs, waiting)
    alive = sum(job.phase != "over" and job.id not in {e.job for e in found.cancel} for job in jobs)
    assert found.submit == 0 or alive + found.submit <= scale.maximum
    servable = sum(can_serve(scale, ask) for ask in waiting)
    assert found.submit <= max(servable, scale.minimum)


@given(worlds())
def test_nobody_who_is_served_loses_a_node_without_notice(
    world: tuple[Scale, list[Standing], list[Ask]],
) -> None:
    scale, jobs, waiting = world
    found = decided(scale, jobs, waiting)
    busy = {job.id for job in jobs if job.busy}
    assert not busy & {ending.job for ending in found.cancel}
    assert not busy & {ending.job for ending in found.drain if not ending.evict}


@given(worlds())
def test_what_was_ended_or_is_ending_is_left_alone(world: tuple[Scale, list[Standing], list[Ask]]) -> None:
    scale, jobs, waiting = world
    found = decided(scale, jobs, waiting)
    gone = {job.id for job in jobs if job.phase in ("cancelling", "over") or job.engine == "ended"}
    named = [ending.job for ending in (*found.drain, *found.cancel)]
    assert not gone & set(named) and len(named) == len(set(named))


@given(worlds())
def test_jobs_that_somebody_waits_for_are_not_given_back_as_idle(
    world: tuple[Scale, list[Standing], list[Ask]],
) -> None:
    scale, jobs, waiting = world
    found = decided(scale, jobs, waiting)
    idle = {ending.job for ending in (*found.drain, *found.cancel) if "nobody needed" in ending.why}
    assert not idle & found.needed


@given(worlds())
def test_while_an_engine_is_in_trouble_nothing_is_asked_of_it(
    world: tuple[Scale, list[Standing], list[Ask]],
) -> None:
    scale, jobs, waiting = world
    assert decided(scale, jobs, waiting, Trouble(1, NOW + 1, "why")).submit == 0


@given(worlds())
def test_everybody_whom_a_job_could_serve_is_told_something(
    world: tuple[Scale, list[Standing], list[Ask]],
) -> None:
    scale, jobs, waiting = world
    found = decided(scale, jobs, waiting)
    assert set(found.said) == {ask.id for ask in waiting if can_serve(scale, ask)}
    assert all(str(said) for said in found.said.values())


@given(worlds())
def test_jobs_that_were_just_asked_for_are_enough(world: tuple[Scale, list[Standing], list[Ask]]) -> None:
    """A second look, before the engine has said anything, asks for nothing more."""
    scale, jobs, waiting = world
    quiet = [
        replace(job, found=None, seconds_left=None, unneeded_since=None) for job in jobs if not job.connected
    ]
    quiet = [replace(job, since=NOW) for job in quiet]
    first = decided(scale, quiet, waiting)
    new = [Standing(f"n{i}", "submitted", "", NOW, devices=scale.devices) for i in range(first.submit)]
    assert decided(scale, [*quiet, *new], waiting).submit == 0


@given(st.integers(0, 40))
def test_each_failure_waits_longer_up_to_a_bound(failures: int) -> None:
    trouble = Trouble()
    pauses = []
    for _ in range(failures):
        trouble = trouble.failed(NOW, "no")
        pauses.append(trouble.not_before - NOW)
    assert pauses == sorted(pauses) and all(5 <= pause <= 300 for pause in pauses)
