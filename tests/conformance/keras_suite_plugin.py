"""pytest plugin of Keras's own tests: a sample of each file, on the device that is meant.

CONFORMANCE_PLACE: `cpu` or `gpu`; where the backend computes elsewhere, no test is run.
CONFORMANCE_SHARE, CONFORMANCE_LEAST: which part of a file's tests is run, and how many at least. CONFORMANCE_SEED: which; the
same seed chooses the same tests. CONFORMANCE_ONLY: a file that lists tests, which are run in place
of a sample. A test that puts something into the GPU's memory is named in a file beside the log of outcomes.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import random
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BACKEND = os.environ["KERAS_BACKEND"]
ON_GPU = os.environ["CONFORMANCE_PLACE"] == "gpu"


def _tensorflow() -> Any:
    return importlib.import_module("tensorflow")


def _jax() -> Any:
    return importlib.import_module("jax")


def _skip_if_backend(backend: str, reason: str) -> pytest.MarkDecorator:
    """What Keras's tests import from the conftest of its repository, which the wheel does not bring."""
    return pytest.mark.skipif(backend == BACKEND, reason=reason)


def _computes_on() -> str:
    """Where the backend puts a product."""
    if BACKEND == "tensorflow":
        ones = _tensorflow().ones((2, 2))
        device: str = _tensorflow().linalg.matmul(ones, ones).device
    else:
        ones = _jax().numpy.ones((2, 2))
        device = next(iter((ones @ ones).devices())).platform
    return "gpu" if "gpu" in device.lower() else "cpu"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "requires_trainable_backend: Keras's, for backends that only infer")
    conftest = types.ModuleType("conftest")
    conftest.skip_if_backend = _skip_if_backend  # type: ignore[attr-defined]
    sys.modules["conftest"] = conftest
    if BACKEND != "tensorflow" and importlib.util.find_spec("tensorflow"):
        # Tests of each backend read data by it; it would take the device's memory.
        _tensorflow().config.set_visible_devices([], "GPU")
    if (_computes_on() == "gpu") != ON_GPU:
        pytest.exit(f"{BACKEND} computes on the {_computes_on()}", returncode=3)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    only = os.environ.get("CONFORMANCE_ONLY")
    if only is not None:
        listed = set(json.loads(Path(only).read_text()))
        items[:] = [item for item in items if item.nodeid in listed]
        return
    by_file: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.nodeid):
        by_file[item.nodeid.partition("::")[0]].append(item)
    chosen: list[pytest.Item] = []
    for name, tests in sorted(by_file.items()):
        count = max(
            int(os.environ["CONFORMANCE_LEAST"]),
            math.ceil(len(tests) * float(os.environ["CONFORMANCE_SHARE"])),
        )
        seed = f"{os.environ['CONFORMANCE_SEED']} {name}"
        chosen += random.Random(seed).sample(tests, min(count, len(tests)))
    items[:] = chosen


def _allocations() -> int:
    """A number that grows when something is put into the GPU's memory."""
    if BACKEND == "jax":
        return int(_jax().devices("gpu")[0].memory_stats()["num_allocs"])
    return int(_tensorflow().config.experimental.get_memory_info("GPU:0")["peak"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if not ON_GPU:
        return (yield)
    if BACKEND == "tensorflow":
        _tensorflow().config.experimental.reset_memory_stats("GPU:0")
    before = _allocations()
    try:
        return (yield)
    finally:
        if _allocations() > before:
            with Path(os.environ["CONFORMANCE_LOG"]).with_suffix(".device").open("a") as log:
                log.write(f"{item.nodeid}\n")
