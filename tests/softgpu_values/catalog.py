"""All tables together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tests.softgpu_values import (
    approximate_forms,
    bit_forms,
    compare_forms,
    convert_forms,
    float_forms,
    half_forms,
    integer_forms,
    small_forms,
    warp_forms,
)
from tests.softgpu_values.forms import Form

#: Family -> the opcodes that its test tries.
FAMILIES: Final[dict[str, Callable[[], Iterator[Form]]]] = {
    "integer": integer_forms.all_forms,
    "bits": bit_forms.all_forms,
    "compare": compare_forms.all_forms,
    "float": float_forms.all_forms,
    "half": half_forms.all_forms,
    "convert": convert_forms.all_forms,
    "small": small_forms.all_forms,
    "approximate": approximate_forms.all_forms,
    "warp": warp_forms.all_forms,
}
