"""The accessibility checker axe-core in the page under test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page
from stack import ROOT

_AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"


def violations(page: Page, selector: str) -> list[str]:
    """What the checker objects to below `selector`, one line for each element: rule, element, why.

    Raises FileNotFoundError where the front end's packages are not installed (`jlpm install`).
    """
    if page.evaluate("() => typeof window.axe") == "undefined":
        page.evaluate(Path(_AXE).read_text())
    result: dict[str, Any] = page.evaluate(
        "selector => axe.run(selector, { resultTypes: ['violations'] })", selector
    )
    return [
        f"{violation['id']}: {node['html'][:160]} ({node['failureSummary']})"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]
