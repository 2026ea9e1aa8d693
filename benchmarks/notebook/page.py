"""JupyterLab in Chromium, as a measurement needs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psutil
from playwright.sync_api import Browser, Locator, Page, TimeoutError, sync_playwright

from benchmarks.notebook.problem import BenchError
from benchmarks.notebook.stack import BenchStack

#: No sandbox: the command may run as root in a container.
_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: What an action in the page may take on a loaded machine, ms.
PATIENCE_MS: Final = 60_000
#: How often a cell is started, until it shows something.
RUN_TRIES: Final = 3
#: The page as one that lies behind others; the browser itself would slow its timers further.
_HIDE: Final = """hidden => {
  for (const [name, value] of [['hidden', hidden], ['visibilityState', hidden ? 'hidden' : 'visible']]) {
    Object.defineProperty(document, name, { configurable: true, get: () => value });
  }
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def chromium() -> str:
    """Path of the browser. Raises BenchError when there is none."""
    found = os.environ.get("CHROMIUM_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        raise BenchError("No Chromium was found; CHROMIUM_PATH names it.")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), headless=True, args=list(_ARGUMENTS))
        try:
            yield running
        finally:
            running.close()


class LabTab:
    """One tab on JupyterLab, with the sidebar open."""

    def __init__(self, running: Browser, stack: BenchStack, notebook: str) -> None:
        self.page: Page = running.new_page(viewport={"width": 1200, "height": 860})
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.goto(stack.page_url(f"lab/tree/{notebook}?reset"))
        self.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for()
        self.sidebar = self.page.get_by_role("region", name="GPU pool")
        if not self.sidebar.is_visible():
            self.page.get_by_role("tab", name="GPU pool").click()
        self.sidebar.wait_for()

    def kernel(self, label: str) -> Locator:
        kernels = self.sidebar.get_by_role("list", name="Kernels", exact=True)
        return kernels.get_by_role("listitem", name=label, exact=True)

    def set_share(self, label: str, share: str) -> None:
        """Types what Attach of this kernel asks for."""
        self.kernel(label).get_by_role("textbox", name=f"GPU share for {label}").fill(share)

    def run_cell(self, number: int, text: str) -> Locator:
        """Runs a cell; its output, when that shows `text`. Raises BenchError when it does not."""
        cell = self.page.locator(".jp-Notebook-cell").nth(number)
        output = cell.locator(".jp-OutputArea")
        for _ in range(RUN_TRIES):
            cell.locator(".cm-content").click()
            self.page.keyboard.press("Control+Enter")
            try:
                output.get_by_text(text).first.wait_for(timeout=PATIENCE_MS / RUN_TRIES)
            except TimeoutError:
                # A page that is not ready yet loses keys.
                continue
            return output
        raise BenchError(f"Cell {number} did not show {text!r}.")

    def hide(self, hidden: bool) -> None:
        """As the page is told when another window covers it, and when it is seen again."""
        self.page.evaluate(_HIDE, hidden)

    def close(self) -> None:
        self.page.close()


def renderer_pids(running: Browser) -> list[int]:
    """The browser's processes that run pages."""
    session = running.new_browser_cdp_session()
    try:
        told: Any = session.send("SystemInfo.getProcessInfo")
    finally:
        session.detach()
    return [int(process["id"]) for process in told["processInfo"] if process["type"] == "renderer"]


def cpu_seconds(*pids: int) -> float:
    """Processor time that processes have used so far; one that has ended counts nothing."""
    used = 0.0
    for pid in pids:
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.NoSuchProcess:
            continue
        used += times.user + times.system
    return used
