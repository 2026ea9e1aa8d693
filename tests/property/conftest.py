"""In all random stories: what is granted alone is what a look at everything would grant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpupool.pool.queue import queue_rules

from tests.support.alone_checked import checked


@pytest.fixture(scope="module", autouse=True)
def _alone_is_checked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_rules, "granted_alone", checked)
        yield
