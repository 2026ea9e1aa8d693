"""pytest plugin of PyTorch's own tests: those on the device, of which a sample.

CONFORMANCE_SAMPLE: how many tests of a module are run. CONFORMANCE_SEED: which; the same seed chooses the same tests.
"""

from __future__ import annotations

import os
import random

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_device = sorted((item for item in items if "_cuda" in item.name), key=lambda item: item.nodeid)
    count = min(int(os.environ["CONFORMANCE_SAMPLE"]), len(on_device))
    items[:] = random.Random(os.environ["CONFORMANCE_SEED"]).sample(on_device, count)
