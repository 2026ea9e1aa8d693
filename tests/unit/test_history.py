"""What the history says of a minute: what was held, used, and held in vain."""

from __future__ import annotations

import pytest
from gpupool.model.history_amounts import LEVELS, MINUTE_MS, Amounts, Held, Subject, total
from gpupool.model.state import SessionRecord, State, Usage
from gpupool.pool.reporting.history import OTHERS, STEPS, bounded, put_together, step_of, waste
from gpupool.pool.reporting.use_meter import UseMeter

T0 = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
DAY = 86_400_000
ANN = Subject("vm/0", "ann", "default", "s1")


def state_with(usage: Usage, *, devices: tuple[str, ...] = ("vm/0",), place: str = "device") -> State:
    state = State()
    put(state, usage, devices=devices, place=place)
    return state


def put(state: State, usage: Usage, *, devices: tuple[str, ...] = ("vm/0",), place: str = "device") -> None:
    state.sessions["s1"] = SessionRecord(
        "s1", "ann", "a.ipynb", "kernel", "vm", devices, "ab" * 32, state="attached", place=place, usage=usage
    )


class TestIdleWaste:
    def test_is_what_was_held_and_not_used(self) -> None:
        assert waste(Amounts(held_milli_ms=200, used_milli_ms=50)).idle_milli_ms == 150

    def test_of_who_uses_more_than_her_share_is_nothing_and_makes_up_for_nobody(self) -> None:
        bob = Subject("vm/0", "bob", "default", "s2")
        held = Held({ANN: Amounts(held_milli_ms=200), bob: Amounts(held_milli_ms=300)}, {}, {})
        rows = put_together(held, {ANN: Amounts(used_milli_ms=900)}, {}, 60_000)
        assert rows[ANN].idle_milli_ms == 0
        assert rows[bob].idle_milli_ms == 300

    def test_of_a_parked_session_is_nothing(self) -> None:
        rows = put_together(Held({}, {}, {}), {ANN: Amounts(memory_mib_ms=5)}, {"s1": "a.ipynb"}, 60_000)
        (subject,) = [subject for subject in rows if subject.session]
        assert (subject.label, rows[subject].idle_milli_ms) == ("a.ipynb", 0)


class TestAMinute:
    def test_says_how_long_of_it_was_looked_at(self) -> None:
        assert put_together(Held({}, {}, {}), {}, {}, 20_000) == {Subject(): Amounts(covered_ms=20_000)}

    def test_has_a_bounded_number_of_rows_and_loses_no_sum(self) -> None:
        rows = {
            Subject(f"vm/{n % 3}", f"user{n}", "p", f"s{n}"): Amounts(held_milli_ms=n, used_milli_ms=1)
            for n in range(50)
        }
        fewer = bounded(rows, 10)
        assert len(fewer) <= 13
        assert total(fewer.values()) == total(rows.values())
        assert {s.session for s in fewer if s.session} == {f"s{n}" for n in range(40, 50)}
        assert {s.device for s in fewer if s.user == OTHERS} == {"vm/0", "vm/1", "vm/2"}


class TestTheMeter:
    def test_counts_device_time_in_the_minutes_in_which_it_was_used(self) -> None:
        state = state_with(Usage(device_seconds=1.0))
        meter = UseMeter(state, T0 + 30_000)
        put(state, Usage(device_seconds=7.0, bytes_to_device=60))
        meter.look(state, T0 + 90_000)
        first, second = meter.until(T0 + MINUTE_MS), meter.until(T0 + 2 * MINUTE_MS)
        assert first[ANN].used_milli_ms == second[ANN].used_milli_ms == 3_000_000
        assert first[ANN].to_device_bytes == second[ANN].to_device_bytes == 30

    def test_counts_from_the_first_report_of_a_session_that_was_there_before_the_pool(self) -> None:
        state = state_with(Usage())
        meter = UseMeter(state, T0)
        put(state, Usage(device_seconds=100.0))
        meter.look(state, T0 + 5_000)
        assert meter.between(T0, T0 + MINUTE_MS).get(ANN, Amounts()).used_milli_ms == 0
        put(state, Usage(device_seconds=101.0))
        meter.look(state, T0 + 10_000)
        assert meter.until(T0 + MINUTE_MS)[ANN].used_milli_ms == 1_000_000

    def test_takes_what_the_pool_remembers_of_a_session_after_a_restart_for_no_report(self) -> None:
        state = state_with(Usage())
        meter = UseMeter(state, T0)
        for usage in (Usage(memory_used=(1 << 20,)), Usage(device_seconds=100.0)):
            put(state, usage)
            meter.look(state, T0 + 5_000)
        assert meter.between(T0, T0 + MINUTE_MS).get(ANN, Amounts()).used_milli_ms == 0

    def test_counts_all_of_a_session_that_begins_while_it_looks(self) -> None:
        state = State()
        meter = UseMeter(state, T0)
        put(state, Usage(device_seconds=2.0))
        meter.look(state, T0 + 5_000)
        assert meter.until(T0 + MINUTE_MS)[ANN].used_milli_ms == 2_000_000

    def test_divides_time_among_the_devices_of_a_session(self) -> None:
        state = state_with(Usage(device_seconds=1.0, idle_seconds=1.0), devices=("vm/0", "vm/1"))
        meter = UseMeter(state, T0)
        put(state, Usage(device_seconds=4.0), devices=("vm/0", "vm/1"))
        meter.look(state, T0 + 5_000)
        used = meter.until(T0 + MINUTE_MS)
        assert {subject.device: amounts.used_milli_ms for subject, amounts in used.items()} == {
            "vm/0": 1_500_000,
            "vm/1": 1_500_000,
        }

    def test_counts_memory_while_it_lies_on_the_device(self) -> None:
        state = state_with(Usage(memory_used=(10 << 20,)))
        meter = UseMeter(state, T0)
        meter.look(state, T0 + 5_000)
        put(state, Usage(memory_used=(10 << 20,)), place="host")
        meter.look(state, T0 + 10_000)
        assert meter.until(T0 + MINUTE_MS)[ANN].memory_mib_ms == 50_000

    def test_what_comes_late_counts_in_the_first_minute_that_is_open(self) -> None:
        state = state_with(Usage(device_seconds=1.0))
        meter = UseMeter(state, T0)
        assert meter.until(T0 + MINUTE_MS) == {}
        put(state, Usage(device_seconds=3.0))
        meter.look(state, T0 + 70_000)
        assert meter.until(T0 + 2 * MINUTE_MS)[ANN].used_milli_ms == 2_000_000

    def test_what_could_not_be_stored_is_counted_again(self) -> None:
        state = state_with(Usage(device_seconds=1.0))
        meter = UseMeter(state, T0)
        put(state, Usage(device_seconds=3.0))
        meter.look(state, T0 + 5_000)
        used = meter.until(T0 + MINUTE_MS)
        meter.give_back(T0, used)
        assert meter.until(T0 + MINUTE_MS) == used


class TestPointsOfASeries:
    @pytest.mark.parametrize(
        ("ago", "points", "minutes"),
        [(3_600_000, 200, 1), (DAY, 200, 10), (2 * DAY, 2000, 10), (7 * DAY, 200, 60), (90 * DAY, 200, 720)],
    )
    def test_are_as_fine_as_fits_and_as_is_known(self, ago: int, points: int, minutes: int) -> None:
        assert step_of(T0 - ago, T0, T0, points) == minutes * MINUTE_MS

    def test_have_lengths_that_periods_of_every_level_fit_into(self) -> None:
        for level in LEVELS:
            fitting = [step for step in STEPS if step % level.length_ms == 0]
            assert fitting[0] == level.length_ms
        assert all(86_400_000 % step == 0 or step % 86_400_000 == 0 for step in STEPS)
