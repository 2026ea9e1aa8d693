"""Every opcode of the tables on a thousand values and more: edges of the types, all pairs of them, random ones."""

from __future__ import annotations

import pytest

from tests.softgpu_values import video_forms
from tests.softgpu_values.catalog import FAMILIES
from tests.softgpu_values.device import LIBRARY, device
from tests.softgpu_values.forms import complaints

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the native parts are not built (make build)")


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_the_reference(family: str) -> None:
    found = complaints(device(), FAMILIES[family]())
    assert not found, "\n".join(found)


def test_video_instructions_are_those_of_the_manual() -> None:
    # Taken apart when they are loaded: they have no entries of their own in the table of opcodes.
    found = complaints(device(), video_forms.all_forms(), least=256)
    assert not found, "\n".join(found)
