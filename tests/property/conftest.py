"""In all random stories: what is found by a short way is what a look at everything would find."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gpupool.pool.projects import accounts, standing_view
from gpupool.pool.queue import queue_rules
from gpupool.pool.reclaim import taking_rules

from tests.support import holdings_checked
from tests.support.alone_checked import checked


@pytest.fixture(scope="module", autouse=True)
def _short_ways_are_checked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_rules, "granted_alone", checked)
        patch.setattr(standing_view, "standings", holdings_checked.standings)
        patch.setattr(accounts, "decayed_usage", holdings_checked.decayed_usage)
        # The columns of what-ifs, too, which otherwise only pools have in which many wait.
        patch.setattr(taking_rules, "_FEW", 0)
        yield
