"""Makes the pictures in docs/screenshots from the running product: `python ui-tests/screenshots.py`.

Other people's shares and requests in the pictures are real too: reservations made with the
command line, for users with other names. The quickstart trains ten times as long as usual, so
that there is time to look at it in two themes.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from conftest import CHROMIUM, CHROMIUM_ARGUMENTS
from lab_page import LabPage
from playwright.sync_api import Browser, ViewportSize, expect, sync_playwright
from stack import ROOT, LabStack

FOLDER = ROOT / "docs" / "screenshots"
NOTEBOOK = "quickstart.ipynb"
SIZE: ViewportSize = {"width": 1240, "height": 780}


@contextlib.contextmanager
def company(lab: LabStack) -> Iterator[None]:
    """A pool that others use as well: two reservations and a request that waits."""
    for user, label, share in (("maria", "train.ipynb", "0.3"), ("tom", "llm.ipynb", "0.75")):
        lab.stack.gpupool("request", "-p", share, "--user", user, "--label", label, "--for", "1h")
    command = [sys.executable, "-m", "gpupool.cli.main", "request", "-p", "0.8"]
    waiting = subprocess.Popen(
        [*command, "--wait", "forever", "--user", "jo", "--label", "resnet.ipynb"],
        env=lab.stack.environment,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        yield
    finally:
        waiting.terminate()
        waiting.wait(20)


def open_quickstart(browser: Browser, lab: LabStack) -> LabPage:
    notebook = (ROOT / "examples" / NOTEBOOK).read_text()
    longer = notebook.replace("BATCH, EPOCHS, RATE = 128, 40, 0.5", "BATCH, EPOCHS, RATE = 128, 400, 0.5")
    longer = longer.replace("if epoch % 10 == 9", "if epoch % 100 == 99")
    assert longer != notebook, "the quickstart has changed: say here how to make it train longer"
    (lab.folder / NOTEBOOK).write_text(longer)
    context = browser.new_context(viewport=SIZE, device_scale_factor=2)
    page = LabPage(context, lab)
    page.open(NOTEBOOK)
    page.open_sidebar()
    expect(page.kernel(NOTEBOOK)).to_be_visible()
    return page


def look_at(page: LabPage, text: str) -> None:
    """Scrolls the notebook to the cell that holds `text`."""
    cell = page.page.locator(".jp-Notebook-cell").filter(has_text=text).first
    cell.evaluate("node => node.scrollIntoView({ block: 'start' })")


def take(page: LabPage, name: str) -> None:
    # Nothing may point at a thing that the picture is not about.
    page.page.mouse.move(SIZE["width"] - 300, SIZE["height"] - 60)
    page.page.wait_for_timeout(700)
    page.page.screenshot(path=FOLDER / f"{name}.png", scale="device")


@contextlib.contextmanager
def training(browser: Browser, theme: str) -> Iterator[LabPage]:
    """A page on which the quickstart trains and has made some way."""
    started = LabStack()
    # Numba's advice on grid sizes names files of this machine, which belong in no picture.
    started.stack.environment["NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"] = "0"
    with started as lab, company(lab):
        lab.settings("@jupyterlab/apputils-extension:themes", {"theme": theme})
        page = open_quickstart(browser, lab)
        page.run_all()
        expect(page.state(NOTEBOOK)).to_have_text("attached", timeout=60_000)
        feed = page.page.get_by_role("feed", name="Cells")
        expect(feed).to_contain_text("epoch 100", timeout=120_000)
        look_at(page, "Train on a fifth of a GPU")
        yield page


def light(browser: Browser) -> None:
    with training(browser, "JupyterLab Light") as page:
        take(page, "sidebar-light")
        widget = page.page.get_by_role("region", name="GPU use of this kernel")
        widget.screenshot(path=FOLDER / "widget.png", scale="device")
        feed = page.page.get_by_role("feed", name="Cells")
        expect(feed).to_contain_text(re.compile(r"accuracy on the GPU: 0\.9"), timeout=180_000)
        expect(page.state(NOTEBOOK)).to_have_text("parked")
        look_at(page, "train_images, train_labels")
        take(page, "quickstart")


def dark(browser: Browser) -> None:
    with training(browser, "JupyterLab Dark") as page:
        take(page, "sidebar-dark")


def warning(browser: Browser) -> None:
    """A held share that nothing uses."""
    with LabStack("--idle-seconds", "60", "--warn-seconds", "52") as lab:
        page = open_quickstart(browser, lab)
        page.attach(NOTEBOOK, "0.2")
        expect(page.state(NOTEBOOK)).to_have_text("warned", timeout=60_000)
        expect(page.notification("does not use its GPU")).to_be_visible()
        take(page, "warning")


def notice(browser: Browser) -> None:
    """A share above what its project deserves, which another project is entitled to."""
    with LabStack("--notice-seconds", "60") as lab:
        lab.stack.gpupool("project", "set", "research", "--deserved", "2")
        lab.stack.gpupool("project", "set", "courses", "--min-run", "0")
        lab.settings("jupyter-gpupool:plugin", {"defaultProject": "courses"})
        page = open_quickstart(browser, lab)
        page.attach(NOTEBOOK, "1")
        asked = ["request", "-n", "2", "-p", "1", "--project", "research", "--wait", "forever"]
        waiting = subprocess.Popen(
            [sys.executable, "-m", "gpupool.cli.main", *asked, "--user", "maria", "--label", "train.ipynb"],
            env=lab.stack.environment,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
        )
        try:
            expect(page.state(NOTEBOOK)).to_have_text("warned", timeout=60_000)
            expect(page.notification("is asked back")).to_be_visible()
            take(page, "notice")
        finally:
            waiting.terminate()
            waiting.wait(20)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not Path(CHROMIUM).exists():
        raise SystemExit(f"no Chromium at {CHROMIUM}: apt-get install chromium, or set CHROMIUM_PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=CHROMIUM_ARGUMENTS)
        light(browser)
        dark(browser)
        warning(browser)
        notice(browser)
        browser.close()
    for picture in sorted(FOLDER.glob("*.png")):
        print(f"{picture.relative_to(ROOT)}  {picture.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
