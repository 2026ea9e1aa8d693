"""What it costs that a page follows ten kernels: the server's processor time, and the page's when nobody sees it."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from playwright.sync_api import Browser, Route

from benchmarks.notebook.page import LabTab, cpu_seconds, renderer_pids
from benchmarks.notebook.stack import BenchStack

#: After a change, until a page is calm, seconds.
CALM_SECONDS: Final = 6.0
_ROUTES: Final = "**/gpupool/api/**"


class Silence:
    """The page's questions are answered in the browser, as the server answered last; the server hears nothing."""

    def __init__(self, tab: LabTab) -> None:
        self._tab = tab
        self._answers: dict[str, Any] = {}
        self.kept_away = 0

    def __enter__(self) -> Silence:
        self._tab.page.route(_ROUTES, self._answer)
        return self

    def __exit__(self, *_: object) -> None:
        self._tab.page.unroute(_ROUTES, self._answer)

    def _answer(self, route: Route) -> None:
        path = route.request.url.partition("?")[0]
        if path not in self._answers:
            self._answers[path] = route.fetch().json()
        else:
            self.kept_away += 1
        route.fulfill(body=json.dumps(self._answers[path]), content_type="application/json")


def server_percent(tab: LabTab, stack: BenchStack, seconds: float, rounds: int) -> dict[str, Any]:
    """Processor time of the Jupyter server with the page's polls and without, in turns, in percent of a core."""
    asked = 0

    def count(request: Any) -> None:
        nonlocal asked
        asked += "/gpupool/api/" in request.url

    tab.page.on("request", count)
    with_, without = [], []
    for _ in range(rounds):
        with_.append(_share(tab, (stack.server_pid,), seconds))
        with Silence(tab):
            without.append(_share(tab, (stack.server_pid,), seconds))
    per_minute = 60 * asked / (2 * rounds * (seconds + CALM_SECONDS))
    return {"with": with_, "without": without, "requests_per_minute": per_minute}


def hidden_percent(
    running: Browser, tab: LabTab, stack: BenchStack, seconds: float, rounds: int
) -> dict[str, Any]:
    """Processor time of the page's renderer while the page is hidden and, beside it, seen; in percent of a core."""
    pids = renderer_pids(running)
    seen, hidden = [], []
    asked = 0

    def count(request: Any) -> None:
        nonlocal asked
        asked += "/gpupool/api/" in request.url

    for _ in range(rounds):
        seen.append(_share(tab, pids, seconds))
        tab.hide(True)
        tab.page.wait_for_timeout(1000 * CALM_SECONDS)
        tab.page.on("request", count)
        hidden.append(_share(tab, pids, seconds))
        tab.page.remove_listener("request", count)
        tab.hide(False)
    return {"hidden": hidden, "seen": seen, "requests_while_hidden": asked}


def _share(tab: LabTab, pids: Any, seconds: float) -> float:
    tab.page.wait_for_timeout(1000 * CALM_SECONDS)
    before, started = cpu_seconds(*pids), time.monotonic()
    tab.page.wait_for_timeout(1000 * seconds)
    return 100 * (cpu_seconds(*pids) - before) / (time.monotonic() - started)
