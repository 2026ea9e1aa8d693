"""Times as people write them, in the command line and above cells."""

from __future__ import annotations

import pytest
from gpupool.durations import DurationError, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5m", 90),
        ("10m", 600),
        ("2h", 7200),
        ("7d", 604_800),
        (" 5m ", 300),
        ("0", 0),
    ],
)
def test_a_time_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "1e3", "inf", "nan", "5 minutes", "1h30m", "٣m", "9" * 10]
)
def test_what_is_none_is_named(text: str) -> None:
    with pytest.raises(DurationError, match="90s, 5m, 2h, 1d") as error:
        parse_duration(text)
    assert repr(text) in str(error.value)
