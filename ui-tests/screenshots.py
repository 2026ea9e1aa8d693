"""Makes the pictures in docs/screenshots from the running product.

`python ui-tests/screenshots.py` makes all, `python ui-tests/screenshots.py warning notice` two of the scenes.

Other people's shares and requests in the pictures are real too: reservations made with the
command line, for users with other names. The quickstart trains ten times as long as usual, so
that there is time to look at it.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from conftest import CHROMIUM, CHROMIUM_ARGUMENTS
from lab_page import KERNEL_MS, LabPage
from long_quickstart import NOTEBOOK, long_quickstart
from playwright.sync_api import Browser, Locator, ViewportSize, expect, sync_playwright
from stack import ROOT, LabStack

FOLDER = ROOT / "docs" / "screenshots"
SIZE: ViewportSize = {"width": 1240, "height": 780}
#: A step on a machine that does other things too, ms.
PATIENCE_MS = 150_000
expect.set_options(timeout=PATIENCE_MS)


@contextlib.contextmanager
def asking(lab: LabStack, user: str, label: str, *what: str) -> Iterator[None]:
    """Somebody else's request that waits."""
    command = [sys.executable, "-m", "gpupool.cli.main", "lease", "request", *what, "--wait", "forever"]
    waiting = subprocess.Popen(
        [*command, "--user", user, "--label", label],
        env=lab.stack.environment,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        yield
    finally:
        waiting.terminate()
        waiting.wait(20)


@contextlib.contextmanager
def company(lab: LabStack) -> Iterator[None]:
    """A pool that others use as well: two reservations and a request that waits."""
    for user, label, share in (("maria", "train.ipynb", "0.3"), ("tom", "llm.ipynb", "0.75")):
        lab.stack.gpupool("lease", "request", "-p", share, "--user", user, "--label", label, "--for", "1h")
    with asking(lab, "jo", "resnet.ipynb", "-p", "0.8"):
        yield


@contextlib.contextmanager
def quickstart(browser: Browser, lab: LabStack, address: str = "lab/tree/") -> Iterator[LabPage]:
    """The quickstart in a page of its own, its kernel idle."""
    long_quickstart(lab.folder)
    context = browser.new_context(viewport=SIZE, device_scale_factor=2)
    page = LabPage(context, lab)
    page.page.set_default_timeout(PATIENCE_MS)
    if address == "lab/tree/":
        page.open(NOTEBOOK)
        page.open_sidebar()
        expect(page.kernel(NOTEBOOK)).to_be_visible()
    else:
        page.page.goto(lab.url(f"{address}{NOTEBOOK}"))
        expect(page.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']")).to_be_visible(
            timeout=KERNEL_MS
        )
    try:
        yield page
    finally:
        context.close()


def feed(page: LabPage) -> Locator:
    return page.page.get_by_role("feed", name="Cells")


def train(page: LabPage) -> None:
    """Runs all cells, until the quickstart has made some way."""
    page.run_all()
    expect(page.state(NOTEBOOK)).to_have_text("attached")
    expect(feed(page)).to_contain_text("epoch 100")
    look_at(page, "Train on a fifth of a GPU")


def look_at(page: LabPage, text: str) -> None:
    """Scrolls the notebook to the cell that holds `text`."""
    cell = page.page.locator(".jp-Notebook-cell").filter(has_text=text).first
    cell.evaluate("node => node.scrollIntoView({ block: 'start' })")


def take(page: LabPage, name: str, *, still: bool = True) -> None:
    """The whole page. Nothing may point at a thing that the picture is not about, but for open menus."""
    if still:
        page.page.mouse.move(SIZE["width"] - 300, SIZE["height"] - 60)
    page.page.wait_for_timeout(700)
    page.page.screenshot(path=FOLDER / f"{name}.png", scale="device")


def take_around(page: LabPage, name: str, *parts: Locator, margin: int = 12) -> None:
    """What surrounds these elements."""
    page.page.wait_for_timeout(700)
    boxes = [box for part in parts if (box := part.bounding_box())]
    left, top = min(b["x"] for b in boxes) - margin, min(b["y"] for b in boxes) - margin
    right = max(b["x"] + b["width"] for b in boxes) + margin
    bottom = max(b["y"] + b["height"] for b in boxes) + margin
    left, top = max(0.0, left), max(0.0, top)
    page.page.screenshot(
        path=FOLDER / f"{name}.png",
        scale="device",
        clip={
            "x": left,
            "y": top,
            "width": min(SIZE["width"], right) - left,
            "height": min(SIZE["height"], bottom) - top,
        },
    )


@contextlib.contextmanager
def shared_pool(theme: str = "JupyterLab Light") -> Iterator[LabStack]:
    started = LabStack()
    # Numba's advice on grid sizes names files of this machine, which belong in no picture.
    started.stack.environment["NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"] = "0"
    with started as lab, company(lab):
        lab.settings("@jupyterlab/apputils-extension:themes", {"theme": theme})
        yield lab


def light(browser: Browser) -> None:
    """The quickstart while it trains and after it, and all that stands around the notebook."""
    with shared_pool() as lab, quickstart(browser, lab) as page:
        train(page)
        take(page, "sidebar-light")
        page.page.get_by_role("region", name="GPU use of this kernel").screenshot(
            path=FOLDER / "widget.png", scale="device"
        )
        page.toolbar_button.click()
        menu = page.page.get_by_role("menu").filter(has_text="Detach GPU")
        expect(menu).to_be_visible()
        take_around(page, "toolbar-menu", menu, page.toolbar_button)
        page.page.keyboard.press("Escape")
        footer = page.page.locator("#jp-main-statusbar")
        expect(footer).to_contain_text("GPU")
        footer.screenshot(path=FOLDER / "status-bar.png", scale="device")
        running_panel(page)
        page.open_sidebar()
        expect(feed(page)).to_contain_text(re.compile(r"accuracy on the GPU: 0\.9"), timeout=240_000)
        expect(page.state(NOTEBOOK)).to_have_text("no GPU, memory kept")
        look_at(page, "train_images, train_labels")
        take(page, "quickstart")
        result = page.page.locator(".jp-GpuPool-cellResult").first
        result.get_by_text(re.compile("device time")).first.click()
        page.page.mouse.move(5, 5)
        take_around(page, "cell-result", result)


def running_panel(page: LabPage) -> None:
    page.page.get_by_role("tab", name="Running Terminals and Kernels").click()
    panel = page.page.locator("#jp-running-sessions")
    expect(panel).to_contain_text("GPU Shares")
    take_around(page, "running-panel", panel, margin=0)


def settings(browser: Browser) -> None:
    with LabStack() as lab, quickstart(browser, lab) as page:
        open_settings(page)
        take(page, "settings")


def open_settings(page: LabPage) -> None:
    page.menu("Settings")
    page.page.get_by_role("menuitem", name=re.compile("^Settings Editor")).first.click()
    editor = page.page.locator(".jp-SettingsPanel")
    expect(editor).to_be_visible()
    page.page.locator(".jp-PluginList").get_by_text("GPU Pool", exact=True).click()
    expect(page.page.get_by_text("Idle minutes", exact=True)).to_be_visible()


def dashboards(browser: Browser) -> None:
    """The pool over the last minutes: others' shares, one who waits, and a notebook that trains."""
    with shared_pool() as lab, quickstart(browser, lab) as page:
        train(page)
        page.page.wait_for_timeout(75_000)  # its history goes by minutes
        look_at_dashboards(page, lab)


def look_at_dashboards(page: LabPage, lab: LabStack) -> None:
    node = lab.devices()[0]["node"]
    views = {
        "dashboard-cluster": "cluster&gpupool-by=user",
        "dashboard-node": f"node/{node}",
        "dashboard-users": "user",
        "dashboard-client": "client",
        "dashboard-quotas": "quotas",
    }
    lab.stack.gpupool("project", "set", "research", "--deserved", "1.5", "--member", "maria")
    lab.stack.gpupool("project", "set", "courses", "--deserved", "0.5", "--limit", "1")
    for name, place in views.items():
        page.page.goto(lab.url(f"lab?gpupool={place}&reset"))
        dashboard = page.page.get_by_role("region", name="GPU dashboard")
        expect(dashboard).to_be_visible(timeout=KERNEL_MS)
        expect(dashboard.get_by_role("heading").first).to_be_visible()
        if name != "dashboard-quotas":
            expect(dashboard.get_by_role("img", name=re.compile("^Compute"))).to_be_visible()
        if name in ("dashboard-users", "dashboard-client"):
            # Who had what stands below the charts.
            dashboard.get_by_role("region", name="Sums").scroll_into_view_if_needed()
        take(page, name)


def dark(browser: Browser) -> None:
    with shared_pool("JupyterLab Dark") as lab, quickstart(browser, lab) as page:
        train(page)
        take(page, "sidebar-dark")


def queue(browser: Browser) -> None:
    """A request that does not fit: its place, why, and what would help."""
    with shared_pool() as lab, quickstart(browser, lab) as page:
        page.sidebar.get_by_role("button", name="Got it").click()
        page.share_input(NOTEBOOK).fill("0.9")
        page.press(NOTEBOOK, "Attach")
        expect(page.state(NOTEBOOK)).to_have_text("queued")
        expect(page.kernel(NOTEBOOK)).to_contain_text("Place")
        page.page.wait_for_timeout(3000)  # the explanation is asked for when the place is known
        take(page, "queue")


def notebook7(browser: Browser) -> None:
    with shared_pool() as lab, quickstart(browser, lab, "notebooks/") as page:
        page.toolbar_button.click()
        page.page.get_by_role("menuitem", name="Show GPU Pool").click()
        expect(page.kernel(NOTEBOOK)).to_be_visible()
        page.attach(NOTEBOOK, "0.2")
        take(page, "notebook7")


def warning(browser: Browser) -> None:
    """A held share that nothing uses, and the way back after its release."""
    with LabStack("--idle-seconds", "60", "--warn-seconds", "52") as lab, quickstart(browser, lab) as page:
        page.attach(NOTEBOOK, "0.2")
        expect(page.state(NOTEBOOK)).to_have_text("goes back soon", timeout=PATIENCE_MS)
        expect(page.notification("does not use its GPU")).to_be_visible()
        take(page, "warning")
        expect(page.state(NOTEBOOK)).to_have_text(re.compile("no GPU"), timeout=PATIENCE_MS)
        expect(page.kernel(NOTEBOOK).get_by_role("button", name=re.compile("^Undo"))).to_be_visible()
        take(page, "undo")


def notice(browser: Browser) -> None:
    """A share above what its project deserves, which another project is entitled to."""
    with LabStack("--notice-seconds", "60") as lab:
        lab.stack.gpupool("project", "set", "research", "--deserved", "2")
        lab.stack.gpupool("project", "set", "courses", "--min-run", "0")
        lab.settings("jupyter-gpupool:plugin", {"defaultProject": "courses"})
        with quickstart(browser, lab) as page:
            page.attach(NOTEBOOK, "1")
            with asking(lab, "maria", "train.ipynb", "-n", "2", "-p", "1", "--project", "research"):
                expect(page.state(NOTEBOOK)).to_have_text("goes back soon", timeout=PATIENCE_MS)
                expect(page.notification("is asked back")).to_be_visible()
                take(page, "notice")


THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

#: Notebooks of a person who has many open; what is not empty is attached.
TWELVE = {
    "augment.ipynb": "0.2",
    "baseline.ipynb": "",
    "clean-data.ipynb": "",
    "compare.ipynb": "0.5",
    "embeddings.ipynb": "",
    "evaluate.ipynb": "",
    "figures.ipynb": "",
    "labels.ipynb": "",
    "paper-plots.ipynb": "",
    "sweep.ipynb": "0.25",
    "tokenizer.ipynb": "",
}


def take_in_both_themes(page: LabPage, name: str, ready: Locator) -> None:
    for suffix, theme in THEMES.items():
        page.lab.settings("@jupyterlab/apputils-extension:themes", {"theme": theme})
        page.page.reload()
        page.wait_kernel()
        page.open_sidebar()
        expect(ready).to_be_visible()
        take(page, f"{name}-{suffix}")


def kernels(browser: Browser) -> None:
    """Twelve kernels: the one in front first, those that hold a GPU, the others in one line."""
    with LabStack() as lab, quickstart(browser, lab) as page:
        take(page, "introduction")
        for name, share in TWELVE.items():
            lab.start_notebook(name, share)
        page.attach(NOTEBOOK, "0.25")
        more = page.sidebar.get_by_role("button", name="8 kernels without a GPU")
        take_in_both_themes(page, "kernels", more)


def nodes(browser: Browser) -> None:
    """Three nodes with eight GPUs each, others at work on all of them."""
    with LabStack("--software-gpus", "8") as lab, contextlib.ExitStack() as others:
        for name in ("gpu-a", "gpu-b"):
            others.enter_context(lab.second_node(name, 8192, gpus=8))
        for number in range(9):
            lab.reserve(
                ("1", "0.6", "0.35")[number % 3], ("maria", "tom", "jo")[number % 3], f"run{number}.ipynb"
            )
        with quickstart(browser, lab) as page:
            page.attach(NOTEBOOK, "0.25")
            take_in_both_themes(page, "nodes", page.sidebar.get_by_role("group", name="Node gpu-b"))


def pool(browser: Browser) -> None:
    """Two hundred GPUs: a machine has at most sixteen software GPUs."""
    with LabStack("--software-gpus", "8") as lab, contextlib.ExitStack() as others:
        for number in range(1, 13):
            others.enter_context(lab.second_node(f"gpu-{number:02}", 8192, gpus=16))
        for number in range(12):
            lab.reserve(
                ("1", "0.6", "0.35")[number % 3], ("maria", "tom", "jo")[number % 3], f"run{number}.ipynb"
            )
        with quickstart(browser, lab) as page:
            page.attach(NOTEBOOK, "0.25")
            take_in_both_themes(
                page, "pool", page.sidebar.get_by_role("button", name=re.compile("more nodes"))
            )


SCENES: dict[str, Callable[[Browser], None]] = {
    scene.__name__: scene
    for scene in (light, dark, queue, notebook7, settings, warning, notice, dashboards, kernels, nodes, pool)
}


def main(*names: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    unknown = [name for name in names if name not in SCENES]
    if unknown:
        raise SystemExit(f"there is no scene {unknown[0]}; there are {', '.join(SCENES)}")
    if not Path(CHROMIUM).exists():
        raise SystemExit(f"no Chromium at {CHROMIUM}: apt-get install chromium, or set CHROMIUM_PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=CHROMIUM_ARGUMENTS)
        for name in names or SCENES:
            print(name, flush=True)
            SCENES[name](browser)
        browser.close()
    for picture in sorted(FOLDER.glob("*.png")):
        print(f"{picture.relative_to(ROOT)}  {picture.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
