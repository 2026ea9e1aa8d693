"""JupyterLab as a person sees it: everything is found by role and name."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page, expect
from stack import LabStack

#: A kernel start on a loaded machine, ms.
KERNEL_MS = 60_000
#: What the page loads of this extension: scripts, and the schema and values of its settings.
OUR_FILES = re.compile(r"/lab/(?:extensions|api/settings)/jupyter-gpupool\b")
#: How the error of a cell begins: IPython's line before a traceback, or our own errors, which have none.
CELL_ERROR = re.compile(r"^\s*(-{20}|Gpu\w*Error: |KeyboardInterrupt: )")


class LabPage:
    """One browser tab on JupyterLab or Notebook."""

    def __init__(self, context: BrowserContext, lab: LabStack) -> None:
        self.lab = lab
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.errors: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self._on_error(f"{error}\n{error.stack}"))

    def _on_console(self, message: ConsoleMessage) -> None:
        url = str(message.location.get("url"))
        # A refused request is an answer; the browser logs each as a failed resource. That a file of ours is missing is none.
        missing = "status of 404" in message.text and OUR_FILES.search(url)
        if message.type == "error" and (missing or "Failed to load resource" not in message.text):
            self._on_error(f"{message.text}\n{url}")

    def _on_error(self, text: str) -> None:
        # JupyterLab and Notebook have errors of their own; ours name our files or plugins.
        if "gpupool" in text:
            self.errors.append(text)

    # -- going places

    def open(self, notebook: str) -> None:
        """Opens a notebook in a fresh workspace and waits until its kernel is connected."""
        self.page.goto(self.lab.url(f"lab/tree/{notebook}?reset"))
        self.wait_kernel()

    def wait_kernel(self) -> None:
        # The status bar says so only after the connection to the kernel is up.
        expect(self.page.get_by_text(re.compile(r"\| Idle$"))).to_be_visible(timeout=KERNEL_MS)

    def open_sidebar(self) -> Locator:
        sidebar = self.sidebar
        if not sidebar.is_visible():
            self.page.get_by_role("tab", name="GPU pool").click()
        expect(sidebar).to_be_visible()
        return sidebar

    # -- parts

    @property
    def sidebar(self) -> Locator:
        return self.page.get_by_role("region", name="GPU pool")

    def device(self, number: int) -> Locator:
        devices = self.sidebar.get_by_role("list", name=re.compile("^Devices")).get_by_role("listitem")
        return devices.filter(has=self.page.get_by_role("meter", name=re.compile("^Compute in use on"))).nth(
            number
        )

    def kernel(self, label: str) -> Locator:
        kernels = self.sidebar.get_by_role("list", name="Kernels", exact=True)
        return kernels.get_by_role("listitem", name=label, exact=True)

    def share_input(self, label: str) -> Locator:
        return self.kernel(label).get_by_role("textbox", name=f"GPU share for {label}")

    def state(self, label: str) -> Locator:
        return self.kernel(label).get_by_role("status")

    def press(self, label: str, button: str) -> None:
        self.kernel(label).get_by_role("button", name=re.compile(f"^{button}")).click()

    @property
    def cell_errors(self) -> Locator:
        """The errors that cells ended with. JupyterLab shows them as what it shows from standard error."""
        shown = self.page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']")
        return shown.filter(has_text=CELL_ERROR)

    @property
    def toolbar_button(self) -> Locator:
        return self.page.get_by_role("button", name=re.compile("^GPU of this notebook: "))

    def notification(self, text: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("alert").filter(has_text=text)

    # -- doing things

    def attach(self, label: str, share: str) -> None:
        self.share_input(label).fill(share)
        self.press(label, "Attach")
        expect(self.state(label)).to_have_text("attached")

    def cell(self, number: int) -> Locator:
        return self.page.locator(".jp-Notebook-cell").nth(number)

    def run_cell(self, number: int) -> Locator:
        """Starts a cell; returns where its output appears."""
        cell = self.cell(number)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        return cell.locator(".jp-OutputArea")

    def menu(self, *path: str) -> None:
        """Chooses from the menu bar."""
        for item in path:
            self.page.get_by_role("menuitem", name=item, exact=True).click()

    def run_all(self) -> None:
        self.menu("Run", "Run All Cells")

    def run_and_wait(self, number: int, text: str | re.Pattern[str], *, milliseconds: int = 60_000) -> None:
        output = self.run_cell(number)
        expect(output).to_contain_text(text, timeout=milliseconds)

    def expect_done(self, number: int) -> None:
        """The cell has been answered. A cell that is run before that is thrown away if the first one fails."""
        prompt = self.cell(number).locator(".jp-InputPrompt")
        expect(prompt).to_have_text(re.compile(r"\[\d+\]"), timeout=KERNEL_MS)

    def no_errors(self) -> None:
        assert self.errors == [], self.errors
