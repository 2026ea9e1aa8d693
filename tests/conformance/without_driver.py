"""pytest plugin: goes on where there is no driver, so that each test says for itself whether it needs one.

cuda-core's conftest initialises CUDA before the first test and would fail every one of them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    try:
        return (yield)
    except Exception:
        if fixturedef.argname != "session_setup":
            raise
        multiprocessing.set_start_method("spawn", force=True)
        fixturedef.cached_result = (None, fixturedef.cache_key(request), None)
        return None
