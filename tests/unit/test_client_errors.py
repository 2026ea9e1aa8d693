"""What errors of the client library say where nobody else said anything."""

from __future__ import annotations

import pytest
from gpupool.client.at_work import FAILURES
from gpupool.client.errors import DeviceCallFailedError


@pytest.mark.parametrize("action", ["attach", "drain", "detach"])
@pytest.mark.parametrize("result", [46, 700])
def test_a_call_that_failed_is_named_as_people_know_it(action: str, result: int) -> None:
    said = str(DeviceCallFailedError(action, result, ""))
    assert str(result) in said
    assert "drain" not in said
    assert (FAILURES.get(result, "nothing") in said) == (result in FAILURES)
    assert str(DeviceCallFailedError(action, result, "a sentence")) == "a sentence"
