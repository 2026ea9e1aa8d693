"""Every opcode of the tables on a thousand values and more: edges of the types, all pairs of them, random ones."""

from __future__ import annotations

import pytest

from tests.softgpu_values.catalog import FAMILIES
from tests.softgpu_values.device import LIBRARY, device
from tests.softgpu_values.forms import complaints

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the native parts are not built (make build)")


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_the_reference(family: str) -> None:
    found = complaints(device(), FAMILIES[family]())
    assert not found, "\n".join(found)
