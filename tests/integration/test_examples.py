"""The notebooks in examples/ do what they say, run by a real Jupyter server on a real pool."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import examples
from tests.support.pool_node import native_worker_is_built
from tests.support.stack import Stack

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack(*examples.HASTY) as running:
        yield running


# The quickstart is run in a browser (ui-tests/test_quickstart.py).
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.timeout(2 * examples.SECONDS[name] if name in examples.SECONDS else 300)
        )
        for name in examples.names()
        if name != "quickstart"
    ],
)
def test_an_example_runs_from_top_to_bottom(stack: Stack, name: str) -> None:
    python = examples.needed_python(name)
    if python is None:
        pytest.skip(examples.what_is_missing(name))
    done = examples.execute(stack, name, examples.kernel_for(stack, name, python))
    assert examples.errors(done) == []
    assert all(cell.execution_count for cell in done.cells if cell.cell_type == "code")
    stack.wait_free()
