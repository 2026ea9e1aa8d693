"""What `squeue` says, as the provider reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.providers.contract import JobReport
from gpupool.providers.kinds import KINDS, Opening, Place, SettingsError
from gpupool.providers.slurm import report
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000.0
SOON = str(int(NOW) + 700)


@pytest.mark.parametrize(
    ("columns", "read"),
    [
        (("PENDING", "10:00", SOON, "Resources"), JobReport("pending", "Resources", starts_in=700.0)),
        (("PENDING", "10:00", "N/A", "Priority"), JobReport("pending", "Priority")),
        (("PENDING", "10:00", "", "None"), JobReport("pending")),
        (("PENDING", "10:00", "2027-01-15T09:00:00", "Resources"), JobReport("pending", "Resources")),
        (
            ("PENDING", "10:00", str(int(NOW) - 5), "Resources"),
            JobReport("pending", "Resources", starts_in=0.0),
        ),
        (
            ("PENDING", "UNLIMITED", str(int(NOW) + 365 * 86_400), "Resources"),
            JobReport("pending", "Resources"),
        ),
        (("RUNNING", "1-02:03:04", SOON, "None"), JobReport("running", seconds_left=93_784.0)),
        (("RUNNING", "UNLIMITED", SOON, "None"), JobReport("running")),
        (("TIMEOUT", "0:00", SOON, "TimeLimit"), JobReport("ended", "TIMEOUT (TimeLimit)")),
        (("COMPLETED", "0:00", SOON, "None"), JobReport("ended", "COMPLETED")),
    ],
)
def test_columns(columns: tuple[str, str, str, str], read: JobReport) -> None:
    assert report(*columns, NOW) == read


@pytest.mark.parametrize("gres", ["shard", "shard:h100", "mps"])
def test_parts_of_a_gpu_are_not_borrowed(gres: str) -> None:
    place = Place(Path("/nowhere"), "unix:/nowhere/pool.sock", "pool")
    with pytest.raises(SettingsError, match=f"'{gres}' is a part of a GPU"):
        KINDS["slurm"].open(Opening("lab", place, ["gpupool"], None, {"gres": gres}))
    for whole in ("gpu", "gpu:shard"):
        KINDS["slurm"].open(Opening("lab", place, ["gpupool"], None, {"gres": whole}))


@given(state=st.text(), left=st.text(), start=st.text() | st.text("0123456789"), reason=st.text())
def test_whatever_stands_there_is_a_report(state: str, left: str, start: str, reason: str) -> None:
    found = report(state, left, start, reason, NOW)
    assert found.phase in ("pending", "running", "ended")
    assert found.starts_in is None or found.starts_in >= 0.0
