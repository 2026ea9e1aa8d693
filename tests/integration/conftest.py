"""What several files of Jupyter tests stand on: a server in the test's process, real kernels, a pool in memory.

The client runtime is a stand-in. A file with other wishes has fixtures of its own with these names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.jupyter import Cells, JupyterInProcess, jupyter_in_process
from tests.support.stand_in import build_stand_in


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native folder whose client library counts drains and reaches nobody."""
    return build_stand_in(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def settings() -> dict[str, object]:
    """Of the server extension."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    stand_in: Path, settings: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[JupyterInProcess]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GPUPOOL_NATIVE_DIR", str(stand_in))
        async with jupyter_in_process(tmp_path_factory.mktemp("jupyter"), **settings) as running:
            yield running


@pytest_asyncio.fixture(loop_scope="module")
async def jupyter(server: JupyterInProcess) -> AsyncIterator[JupyterInProcess]:
    yield server
    await server.clear()


@pytest_asyncio.fixture(loop_scope="module")
async def kernel(jupyter: JupyterInProcess) -> Cells:
    return await jupyter.start_kernel()
