"""pytest plugin of the Triton suite: PyTorch's own operations on the CPU, and a sample of the tests.

CONFORMANCE_SAMPLE: every how manieth test of a module is run. CONFORMANCE_PIECE: which of the samples of that kind, from 0 on;
all of them together are the whole.
"""

from __future__ import annotations

import os

import pytest

from tests.conformance.eager_on_cpu import enter


def pytest_configure() -> None:
    enter()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    every = int(os.environ.get("CONFORMANCE_SAMPLE", "1"))
    # From the middle of each stretch: the first of a parametrisation is often the simplest.
    piece = int(os.environ.get("CONFORMANCE_PIECE", "0"))
    if len(items) > every:
        items[:] = items[(every // 2 + piece) % every :: every]
    else:
        items[:] = items[piece : piece + 1]
