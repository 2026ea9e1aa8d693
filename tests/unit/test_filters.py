"""What filters mean, as a table."""

from __future__ import annotations

import re

import pytest
from gpupool.filters import FilterError, parse, parse_all
from gpupool.scheduler import DeviceView

H100 = DeviceView(
    "n1/0", "n1", 81559, kind="NVIDIA H100 80GB HBM3", labels={"zone": "a", "rack": "12"}, driver="580.65.06"
)
SOFTWARE = DeviceView("n2/0", "n2", 8192, kind="Software GPU (gpupool)", software=True)


@pytest.mark.parametrize(
    ("text", "h100", "software"),
    [
        ("name=*H100*", True, False),
        ("name=*a100*|*h100*", True, False),
        ("name=NVIDIA H100 80GB HBM3", True, False),
        ("name=H100", False, False),
        ("name!=*h100*", False, True),
        ("memory>=40GiB", True, False),
        ("memory>=80GiB", False, False),  # it has 81559 MiB
        ("memory<16384MiB", False, True),
        ("memory=8GiB", False, True),
        ("driver>=580", True, False),
        ("driver>=580.65.07", False, False),
        ("driver=580", True, False),
        ("driver=580.65", True, False),
        ("driver<581", True, False),
        ("driver!=570", True, False),  # not known: no match
        ("node=n1", True, False),
        ("node=n1|n2", True, True),
        ("node!=n*", False, False),
        ("software=no", True, False),
        ("software=yes", False, True),
        ("software!=yes", True, False),
        ("label.zone=a", True, False),
        ("label.zone=A|b", True, False),
        ("label.zone!=a", False, True),  # without the label, too
        ("label.rack>=10", True, False),
        ("label.rack<12", False, False),
        ("label.zone>=1", False, False),  # no number
    ],
)
def test_which_devices_match(text: str, h100: bool, software: bool) -> None:
    wish = parse(text)
    assert str(wish) == text
    assert (wish.matches(H100), wish.matches(SOFTWARE)) == (h100, software)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no filter"),
        ("H100", "'H100' is no filter"),
        ("size=3", "'size=3' is no filter"),
        ("name>=a", "name is compared with = or !="),
        ("memory>=40", "a size such as 40GiB"),
        ("memory>=-1GiB", "a size such as 40GiB"),
        ("driver>=new", "a version such as 580"),
        ("software=maybe", "software is yes or no"),
        ("label.rack>=x", "compared with a number"),
        ("label.=x", "is no filter"),
        ("name=", "is no filter"),
        ("name=a\nb", "is no filter"),
    ],
)
def test_what_is_no_filter_is_said_with_its_text(text: str, words: str) -> None:
    with pytest.raises(FilterError) as error:
        parse(text)
    assert words in str(error.value)
    assert "write for example" in str(error.value)


def test_a_pattern_is_compiled_once_however_many_filters_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    real = re.compile
    monkeypatch.setattr("gpupool.filters.re.compile", lambda text: compiled.append(text) or real(text))
    # More than any store of patterns would hold.
    wishes = [parse(f"name=*a{number}*") for number in range(5000)]
    assert len(compiled) == len(wishes)
    for wish in wishes:
        wish.matches(H100)
    assert len(compiled) == len(wishes)


class TestOfOneRequest:
    def test_patterns_are_counted_over_all_filters(self) -> None:
        most = ["name=" + "|".join("abcdefgh"), "node=" + "|".join("abcdefgh")]
        sizes = [f"memory>={size}GiB" for size in range(14)]
        assert len(parse_all(most + sizes)) == 16
        with pytest.raises(FilterError, match=r"16 patterns in all, these have 17, 'name=a\|b.*' alone 8"):
            parse_all([*most, "label.zone!=x"])

    def test_one_filter_alone_may_have_no_more(self) -> None:
        with pytest.raises(FilterError, match="joins 17 patterns, more than 16"):
            parse("name=" + "|".join("abcdefghijklmnopq"))

    def test_bytes_are_counted_as_they_are_sent(self) -> None:
        fat = [f"label.l{number:02d}=" + "\U0001f600" * 126 for number in range(4)]
        assert len(parse_all(fat[:3])) == 3
        with pytest.raises(FilterError, match=r"2048 bytes in all, these have 2056.*'label\.l00="):
            parse_all(fat)
