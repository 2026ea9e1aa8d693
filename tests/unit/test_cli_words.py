"""How people write quantities, times and repeated looks on the command line."""

from __future__ import annotations

import re

import pytest
import typer
from gpupool.cli.common import quantities
from gpupool.cli.common.options import whole
from gpupool.cli.common.show import state
from gpupool.cli.common.watch import with_seconds
from gpupool.cli.pool import serve_options
from gpupool.client.types import Notice
from gpupool.scheduler.placement import DEFAULT_POLICY, POLICIES


@pytest.mark.parametrize(
    ("text", "milli"), [("2", 2000), ("0.5", 500), ("12.125", 12125), ("0", 0), (" 1 ", 1000)]
)
def test_gpus_are_exact(text: str, milli: int) -> None:
    assert quantities.milli(text) == milli
    assert quantities.milli(quantities.gpus(milli)) == milli


@pytest.mark.parametrize("text", ["", "-1", "1.0001", "many", "1e3", "½", "٣", "99999999", "0x10"])
def test_what_is_no_number_of_gpus_is_named(text: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        quantities.milli(text)
    assert repr(text) in caught.value.message


def test_the_help_names_every_placement_policy() -> None:
    """In a text of its own: to load the scheduler for it would cost every `--help` a second."""
    option = serve_options.Policy.__metadata__[0]  # type: ignore[attr-defined]
    assert set(POLICIES) <= set(re.findall(r"\w+", option.help))
    assert f"{DEFAULT_POLICY} (the default)" in option.help


def test_words_for_what_is_not_set() -> None:
    assert quantities.milli_or("rest", "rest") is None
    assert quantities.number_or_none("none") is None
    assert quantities.number_or_none("12") == 12
    assert quantities.seconds_or("parent", "parent") is None
    assert quantities.seconds_or("parent", "2m") == 120
    with pytest.raises(typer.BadParameter, match="or rest"):
        quantities.milli_or("rest", "none")
    assert (quantities.gpus_word(1000), quantities.gpus_word(500)) == ("1 GPU", "0.5 GPUs")


@pytest.mark.parametrize("text", ["-1", "11", "x", "", "1.5", "٣", "1" * 30])
def test_whole_numbers_outside_their_bounds_are_named(text: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        whole(0, 10)(text)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize(
    ("line", "filled"),
    [
        ("--watch", "--watch 2"),
        ("--watch 5 --json", "--watch 5 --json"),
        ("--watch --json", "--watch 2 --json"),
        ("--watch=3", "--watch=3"),
        ("gpu1 --watch -n 5", "gpu1 --watch 2 -n 5"),
        ("--watch .5", "--watch .5"),
        ("-- --watch", "-- --watch"),
        ("", ""),
    ],
)
def test_watch_may_stand_without_seconds(line: str, filled: str) -> None:
    assert with_seconds(line.split()) == filled.split()


def test_a_notice_is_part_of_the_state() -> None:
    assert state("attached", None) == "attached"
    assert state("warned", Notice("reclaim", 28.4, "for b")) == "warned, asked back in 28 s"
    assert state("warned", Notice("consolidate", 5, "for b")) == "warned, to be moved in 5 s"
    assert state("warned", Notice("budget", 5, "used up")) == "warned, ends in 5 s"


@pytest.mark.parametrize(
    ("text", "quota"),
    [("ann=2", ("ann", 2000)), ("*=0.5", ("*", 500)), ("ann=99", ("ann", 99_000)), ("ann=1000", ("ann", 1_000_000)),
     ("bob@site=0", ("bob@site", 0))],
)  # fmt: skip
def test_a_quota_is_written_in_gpus(text: str, quota: tuple[str, int]) -> None:
    assert quantities.quota(text) == quota


@pytest.mark.parametrize(
    ("text", "said"),
    [("ann", "is no quota"),
     ("ann=", "is no quota"), ("=2", "is no quota"), ("ann=0.0005", "in steps of 0.001"), ("ann=-1", "'-1'")],
)  # fmt: skip
def test_a_quota_that_could_mean_two_things_or_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        quantities.quota(text)
    assert said in caught.value.message
