"""Each opcode that the engine knows is tried by value, or stands in `elsewhere.py` with its reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.softgpu_values.catalog import FAMILIES
from tests.softgpu_values.device import LIBRARY, device
from tests.softgpu_values.elsewhere import elsewhere
from tests.softgpu_values.forms import complaints

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the native parts are not built (make build)")


def covered() -> set[str]:
    by_value = {form.opcode for forms in FAMILIES.values() for form in forms()}
    return by_value | {name for name in device().opcodes() if name.startswith("mma.")}  # test_matrices.py


def test_no_opcode_is_without_a_test() -> None:
    # Steps with '@' are internal: loads, stores, atomics and others, under names that no program can write.
    known = {name for name in device().opcodes() if not name.startswith("@")}
    others = {name for name, _reason in elsewhere()}
    assert len(known) > 6000
    assert sorted(known - covered() - others) == []
    assert sorted(others - known) == []
    assert sorted(covered() & others) == []


def test_no_test_is_for_an_opcode_that_does_not_exist() -> None:
    known = set(device().opcodes())
    assert sorted(covered() - known) == []


@pytest.mark.parametrize(
    "opcode", ["add.u32", "fma.rn.ftz.f32", "setp.ltu.f64", "cvt.rni.s8.f16", "ex2.approx.f32"]
)
def test_a_wrong_result_is_noticed(opcode: str) -> None:
    form = next(form for forms in FAMILIES.values() for form in forms() if form.opcode == opcode)

    def off_by_one(*values: object) -> object:
        made = form.reference(*values)
        first = np.array(made[0] if isinstance(made, tuple) else made)
        if form.judge:
            at = np.flatnonzero(np.isfinite(first) & (np.abs(first) > 1e-3))[0]
            first[at] *= 1.001
        else:  # a number, whatever the type
            at = np.flatnonzero(first < 0x7F000000)[0]
            first[at] = np.uint64(first[at]) ^ np.uint64(1)
        return (first, *made[1:]) if isinstance(made, tuple) else first

    found = complaints(device(), [replace(form, reference=off_by_one)])
    assert len(found) == 1 and opcode in found[0] and "[1 of" in found[0]
