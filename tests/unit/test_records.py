"""A changed copy is what `dataclasses.replace` makes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
from gpupool.model.state import DeviceRecord, NodeRecord
from gpupool.records import replace
from gpupool.scheduler.model import Decision, Outcome, PlacedShare


@dataclass(frozen=True, slots=True)
class Single:
    only: int


@dataclass(frozen=True, slots=True)
class Derived(Single):
    more: tuple[int, ...] = ()


@dataclass(frozen=True)
class WithoutSlots:
    one: int = 1


@dataclass(frozen=True, slots=True)
class Checked:
    one: int = 1

    def __post_init__(self) -> None:
        assert self.one


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (Single(1), {"only": 2}),
        (Derived(1, (2,)), {"only": 3}),
        (Derived(1, (2,)), {"more": ()}),
        (PlacedShare("n/0", 500, 4000), {}),
        (Decision(Outcome.GRANT, "", None), {"reason": "full", "wants": ("n/0",)}),
    ],
)
def test_as_that_of_the_standard_library(record: object, changes: dict[str, object]) -> None:
    made = replace(record, **changes)
    assert made == dataclasses.replace(record, **changes)
    assert type(made) is type(record)
    assert made is not record


def test_what_is_copied_stays_as_it_was_and_the_copy_is_frozen() -> None:
    share = PlacedShare("n/0", 500, 4000)
    made = replace(share, milli=200)
    assert (share.milli, made.milli, made.mib) == (500, 200, 4000)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.milli = 1


def test_a_field_that_is_none_is_not_made() -> None:
    with pytest.raises(KeyError):
        replace(Single(1), other=2)


@pytest.mark.parametrize("record", [WithoutSlots(), Checked()])
def test_what_is_no_plain_record_is_refused(record: object) -> None:
    with pytest.raises(TypeError, match="no plain record"):
        replace(record, one=2)


@pytest.mark.parametrize("kind", [NodeRecord, DeviceRecord])
def test_the_records_of_the_pool_are_plain(kind: type) -> None:
    assert "__slots__" in vars(kind)
    assert not hasattr(kind, "__post_init__")
