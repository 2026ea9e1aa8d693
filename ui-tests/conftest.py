"""A real browser on the real product; a failed test leaves a picture in test-results/."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import programs
import pytest
from lab_page import LabPage
from playwright.sync_api import BrowserContext, expect, sync_playwright
from stack import ROOT, LabStack, write_notebook

#: Debian's Chromium; no sandbox because tests may run as root in a container.
CHROMIUM = os.environ.get("CHROMIUM_PATH", "/usr/bin/chromium")
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

#: The page polls each 2 s; one slow answer on a loaded machine is no failure.
expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    opened: list[LabPage] = getattr(item, "opened_pages", [])
    if report.when == "call" and report.failed:
        folder = ROOT / "test-results"
        folder.mkdir(exist_ok=True)
        for number, lab_page in enumerate(opened):
            picture = folder / f"{re.sub(r'[^a-zA-Z0-9_.-]+', '-', item.name)}-{number}.png"
            lab_page.page.screenshot(path=picture)
            report.sections.append(("picture", str(picture)))


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Shared by all tests. Its profile is on disk: only there the browser keeps JupyterLab's scripts as it compiled them."""
    if not Path(CHROMIUM).exists():
        pytest.fail(f"no Chromium at {CHROMIUM}: apt-get install chromium, or set CHROMIUM_PATH")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=CHROMIUM,
            headless=True,
            args=CHROMIUM_ARGUMENTS,
            viewport={"width": 1200, "height": 860},
        )
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def shared_stack() -> Iterator[LabStack]:
    """One pool, node and JupyterLab for all tests that break nothing."""
    with LabStack() as lab:
        yield lab


@pytest.fixture
def lab(shared_stack: LabStack) -> Iterator[LabStack]:
    yield shared_stack
    shared_stack.shut_kernels_down()


@pytest.fixture
def open_page(context: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Callable[..., LabPage]]:
    """`open_page(lab)` gives a new tab, closed at the end; errors in its console fail the test."""
    opened: list[LabPage] = []
    request.node.opened_pages = opened

    def create(lab: LabStack) -> LabPage:
        opened.append(LabPage(context, lab))
        return opened[-1]

    yield create
    for lab_page in opened:
        lab_page.page.close()
    for lab_page in opened:
        lab_page.no_errors()


@pytest.fixture
def page(lab: LabStack, open_page: Callable[..., LabPage]) -> LabPage:
    """A notebook with a kernel, and the sidebar beside it."""
    write_notebook(lab.folder / "work.ipynb", programs.ADD, programs.ADD_AGAIN)
    opened = open_page(lab)
    opened.open("work.ipynb")
    opened.open_sidebar()
    expect(opened.kernel("work.ipynb")).to_be_visible()
    return opened
