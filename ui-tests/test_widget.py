"""The widget in a notebook: live, shared by all views of a page, silent where nobody looks."""

from __future__ import annotations

import re
from collections.abc import Callable

import programs
from lab_page import KERNEL_MS, LabPage
from playwright.sync_api import Locator, Page, Request, expect
from stack import LabStack, wait_until, write_notebook

Open = Callable[..., LabPage]

SHOW = "from jupyter_gpupool import GpuUsage\nGpuUsage()"
MANY = "from IPython.display import display\nfrom jupyter_gpupool import GpuUsage\nfor _ in range(20): display(GpuUsage())"


def polls(page: Page) -> list[str]:
    """The page's questions about use, as they are asked from now on."""
    asked: list[str] = []

    def note(request: Request) -> None:
        if "/gpupool/api/kernels/" in request.url and "/usage?" in request.url:
            asked.append(request.url)

    page.on("request", note)
    return asked


def widget(page: LabPage, number: int = 1) -> Locator:
    name = "GPU use of this kernel" + (f", view {number}" if number > 1 else "")
    return page.page.get_by_role("region", name=name, exact=True)


def press(view: Locator, button: str) -> None:
    view.get_by_role("button", name=re.compile(f"^{button}")).click()


def test_the_widget_attaches_detaches_and_undoes(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "widget.ipynb", SHOW, programs.ADD, programs.ADD_AGAIN)
    page = open_page(lab)
    page.open("widget.ipynb")
    page.run_cell(0)
    view = widget(page)
    status = view.get_by_role("status")
    expect(status).to_have_text("no GPU attached")

    press(view, "Attach")
    expect(status).to_have_text("attached")
    expect(view).to_contain_text("0.2 GPU")
    page.run_and_wait(1, "sum 768.0")
    memory = view.get_by_role("meter", name="Memory")
    expect(memory).to_have_attribute("aria-valuetext", re.compile(r"^\d.* of .*iB$"))
    # The canvas is drawn in the theme's colours.
    chart = view.get_by_role("img", name=re.compile("last five minutes"))
    expect(chart).to_be_visible()
    page.page.wait_for_function(
        """canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
               .data.some(value => value > 0)""",
        arg=chart.element_handle(),
    )

    press(view, "Detach")
    expect(status).to_have_text(re.compile("^no GPU, memory kept"))
    press(view, "Undo")
    expect(status).to_have_text("attached")
    page.run_and_wait(2, "sum 1024.0")

    # What the server refuses is said, and stays long enough to be read.
    kernel = lab.stack.api("GET", "gpupool/api/kernels")["kernels"][0]
    page.page.route(
        "**/detach", lambda route: route.continue_(url=route.request.url.replace(kernel["kernel_id"], "gone"))
    )
    press(view, "Detach")
    expect(view.get_by_role("alert")).to_have_text("There is no kernel gone.")
    page.page.wait_for_timeout(2500)
    expect(view.get_by_role("alert")).to_have_text("There is no kernel gone.")


def test_twenty_views_ask_together_and_only_while_one_is_seen(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "twenty.ipynb", MANY)
    write_notebook(lab.folder / "other.ipynb", "1")
    page = open_page(lab)
    page.open("twenty.ipynb")
    page.run_cell(0)
    expect(widget(page, 20)).to_be_attached()
    widget(page).scroll_into_view_if_needed()
    press(widget(page), "Attach")
    expect(widget(page).get_by_role("status")).to_have_text("attached")

    asked = polls(page.page)
    page.page.wait_for_timeout(4000)
    # One question a second for all of them.
    assert 2 <= len(asked) <= 6, asked

    # What comes into sight shows the present state at once; until then it shows the one that it began with.
    expect(widget(page, 20).get_by_role("status")).to_have_text("no GPU attached")
    widget(page, 20).scroll_into_view_if_needed()
    expect(widget(page, 20).get_by_role("status")).to_have_text("attached", timeout=1000)
    # One view speaks for all.
    assert page.page.locator(".jp-GpuUsage-state[aria-live=polite]").count() <= 2

    hide(page)
    page.page.wait_for_timeout(500)
    asked.clear()
    page.page.wait_for_timeout(3000)
    assert asked == []


def hide(page: LabPage) -> None:
    """Puts another document in front of the notebook."""
    page.page.get_by_role("menuitem", name="File", exact=True).click()
    page.page.get_by_role("menuitem", name=re.compile("^New Launcher")).click()
    expect(page.page.get_by_role("tab", name="Launcher")).to_have_attribute("aria-selected", "true")


def test_a_kernel_that_ended_is_not_asked_about_any_more(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "ended.ipynb", SHOW)
    page = open_page(lab)
    page.open("ended.ipynb")
    page.run_cell(0)
    expect(widget(page).get_by_role("status")).to_have_text("no GPU attached", timeout=KERNEL_MS)
    lab.shut_kernels_down()
    expect(widget(page)).to_contain_text("no kernel")
    expect(widget(page)).to_contain_text("state: no GPU")
    asked = polls(page.page)
    page.page.wait_for_timeout(4000)
    assert asked == []


def test_a_notebook_that_is_opened_again_is_live_for_its_new_kernel(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "again.ipynb", SHOW, programs.ADD)
    page = open_page(lab)
    page.open("again.ipynb")
    page.run_cell(0)
    press(widget(page), "Attach")
    expect(widget(page).get_by_role("status")).to_have_text("attached")
    page.page.keyboard.press("Control+s")
    saved = lab.folder / "again.ipynb"
    wait_until(
        lambda: "application/vnd.gpupool.usage+json" in saved.read_text(), 20, "the notebook to be saved"
    )
    page.page.close()
    lab.shut_kernels_down()

    page = open_page(lab)
    page.open("again.ipynb")
    view = widget(page)
    expect(view.get_by_role("status")).to_have_text("no GPU attached")
    press(view, "Attach")
    expect(view.get_by_role("status")).to_have_text("attached")
    page.run_and_wait(1, "sum 768.0")
    expect(page.page.get_by_text("model not found")).to_have_count(0)

    page.menu("Kernel", "Shut Down Kernel")
    expect(view).to_contain_text("This notebook has no kernel. The figures are of")
    expect(view).to_contain_text("state: no GPU")


def test_in_a_layout_of_ipywidgets_it_is_a_widget(lab: LabStack, open_page: Open) -> None:
    write_notebook(
        lab.folder / "layout.ipynb",
        SHOW.replace("GpuUsage()", "import ipywidgets; ipywidgets.VBox([GpuUsage()])"),
    )
    page = open_page(lab)
    page.open("layout.ipynb")
    page.run_cell(0)
    expect(widget(page).get_by_role("status")).to_have_text("no GPU attached", timeout=KERNEL_MS)
    press(widget(page), "Attach")
    expect(widget(page).get_by_role("status")).to_have_text("attached")


def test_notebook_7(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "seven.ipynb", SHOW)
    page = open_page(lab)
    page.page.goto(lab.url("notebooks/seven.ipynb"))
    expect(page.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']")).to_be_visible(
        timeout=KERNEL_MS
    )
    page.run_cell(0)
    expect(widget(page).get_by_role("status")).to_have_text("no GPU attached", timeout=KERNEL_MS)
    press(widget(page), "Attach")
    expect(widget(page).get_by_role("status")).to_have_text("attached")
    press(widget(page), "Detach")
