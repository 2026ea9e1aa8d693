"""The rules of shares hold for every device size and every way to write a share."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from gpupool.shares import (
    Share,
    ShareError,
    format_milli,
    format_share,
    mib_of_milli,
    milli_of_mib,
    offered_milli,
    reserve_mib,
    usable_mib,
)
from hypothesis import given
from hypothesis import strategies as st

MILLI = st.integers(1, 1000)
TOTAL = st.integers(512, 16 * 1024 * 1024)


@given(MILLI)
def test_milli_is_read_back_in_every_spelling(milli: int) -> None:
    assert Share.parse(format_milli(milli)).milli == milli
    assert Share.parse(f"{milli / 10:.1f}%").milli == milli
    assert Share.parse(f"  0{milli / 1000:.3f} ".replace("00.", "0.")).milli == milli


@given(st.integers(0, 100_000))
def test_what_is_read_has_two_decimals_and_what_is_offered_is_there(milli: int) -> None:
    shown = Fraction(format_share(milli)) * 1000
    assert abs(shown - milli) <= 5
    assert milli < 10 or shown % 10 == 0
    assert milli >= 10 or shown == milli
    offered = offered_milli(milli)
    assert milli - 10 < offered <= milli
    assert format_share(offered) == format_milli(offered)


@given(st.integers(1, 16 * 1024 * 1024))
def test_memory_is_read_back_in_every_spelling(mib: int) -> None:
    assert Share.parse(f"{mib}MiB").mib == mib
    assert Share.parse(f"{mib} mib").mib == mib
    assert Share.parse(str(Share(mib=mib))) == Share(mib=mib)
    gib = Fraction(mib, 1024)
    text = f"{mib // 1024}.{int((gib - mib // 1024) * 10**10):010d}"
    assert Share.parse(f"{text}GiB").mib == mib


@given(TOTAL, st.integers(1, 1000))
def test_equal_shares_never_exceed_the_device(total: int, parts: int) -> None:
    usable = usable_mib(total)
    milli = 1000 // parts
    assert mib_of_milli(milli, usable) * parts <= usable
    assert mib_of_milli(1000, usable) == usable


@given(TOTAL, st.data())
def test_a_memory_share_gets_at_least_the_compute_that_it_stands_for(total: int, data: st.DataObject) -> None:
    usable = usable_mib(total)
    mib = data.draw(st.integers(1, usable))
    milli = milli_of_mib(mib, usable)
    assert 1 <= milli <= 1000
    assert mib_of_milli(milli, usable) >= mib
    assert milli == 1 or mib_of_milli(milli - 1, usable) < mib


@given(TOTAL)
def test_the_reserve_is_three_percent_and_never_less_than_256_mib(total: int) -> None:
    assert reserve_mib(total) >= 256
    assert reserve_mib(total) * 100 >= total * 3
    assert reserve_mib(total) in (256, -(-total * 3 // 100))
    assert 0 <= usable_mib(total) < total


@given(st.text(max_size=40))
def test_any_text_is_a_share_or_a_clear_error(text: str) -> None:
    try:
        share = Share.parse(text)
    except ShareError as error:
        assert text.strip()[:40] in str(error) or repr(text.strip()[:40])[1:-1] in str(error)
        assert "0.2" in str(error)
        assert "2.5GiB" in str(error)
    else:
        assert (share.milli is None) != (share.mib is None)


@pytest.mark.parametrize(
    "text",
    ["1.7", "1.001", "101%", "banana", "0", "0.0", "0%", "0MiB", "-0.2", "-1GiB", "nan", "NaN", "inf", "1e-3",
     "0.0005", "0.05%", "1.5MiB", "0.0001GiB", "", "%", "MiB", "0.2.3", "0,2", "0x1", "٣", "½", "20 %%",
     "99999999GiB", "1" * 500],
)  # fmt: skip
def test_what_is_no_share_is_refused_with_its_value_and_what_is_allowed(text: str) -> None:
    with pytest.raises(ShareError) as caught:
        Share.parse(text)
    message = str(caught.value)
    assert text[:40] in message
    assert "0.2 or 20%" in message
    assert "2560MiB or 2.5GiB" in message
    assert len(message) < 300


def test_more_memory_than_the_device_has_is_refused_with_both_numbers() -> None:
    with pytest.raises(ShareError, match=r"9000MiB.*7936 MiB"):
        Share.parse("9000MiB").on_device(usable_mib(8192))


@pytest.mark.parametrize(
    ("text", "meant"),
    [("0,2", "0.2"), ("o.2", "0.2"), (".2x", "0.2"), ("20", "20%"), ("20 pct", "20%"), ("20GB", "20GiB"), ("512 mb", "512MiB"),
     ("5g", "5GiB"), ("1/4", "0.25"), ("0.5 GPU", "0.5")],
)  # fmt: skip
def test_what_looks_like_a_share_is_proposed(text: str, meant: str) -> None:
    with pytest.raises(ShareError, match=rf"did you mean {meant}\?"):
        Share.parse(text)


@given(st.text(alphabet="0123456789.,/ogpuxmib% ", max_size=16))
def test_a_proposal_is_a_share(text: str) -> None:
    try:
        Share.parse(text)
    except ShareError as error:
        proposed = re.search(r"did you mean (\S+)\?", str(error))
        if proposed is not None:
            Share.parse(proposed[1])


@pytest.mark.parametrize(
    ("text", "says"), [("1.5", "0.75 with -n 2"), ("2", "1 with -n 2"), ("250%", "with -n")]
)
def test_more_than_one_gpu_says_how_several_are_asked(text: str, says: str) -> None:
    with pytest.raises(ShareError, match=says):
        Share.parse(text)
