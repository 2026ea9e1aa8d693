"""The same by other ways: keyboard, toolbar, status bar, running panel, after a reload, with many kernels and none."""

from __future__ import annotations

import re
from collections.abc import Callable

from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack

Open = Callable[..., LabPage]


def test_the_keyboard_is_enough(page: LabPage) -> None:
    page.share_input("work.ipynb").focus()
    page.page.keyboard.press("Control+A")
    page.page.keyboard.type("0.3")
    page.page.keyboard.press("Tab")
    button = page.kernel("work.ipynb").get_by_role("button", name=re.compile("^Attach"))
    expect(button).to_be_focused()
    page.page.keyboard.press("Enter")
    expect(page.state("work.ipynb")).to_have_text("attached")

    # The focus stays where it was through polls and the change of the button.
    page.page.wait_for_timeout(5000)
    detach = page.kernel("work.ipynb").get_by_role("button", name=re.compile("^Detach"))
    expect(detach).to_be_focused()
    page.page.keyboard.press("Space")
    expect(page.state("work.ipynb")).to_have_text("parked")


def test_the_toolbar_button_attaches_by_a_menu(page: LabPage) -> None:
    page.toolbar_button.click()
    page.page.get_by_role("menuitem", name="Attach 0.5 GPU").click()
    expect(page.toolbar_button).to_have_text("0.5")
    page.toolbar_button.click()
    page.page.get_by_role("menuitem", name="Detach GPU").click()
    expect(page.toolbar_button).to_have_text("GPU")


def test_the_status_bar_tells_the_share_of_the_current_kernel(page: LabPage) -> None:
    expect(page.page.get_by_role("button", name="GPU pool: 2 free")).to_be_visible()
    page.attach("work.ipynb", "0.2")
    expect(page.page.get_by_role("button", name="GPU: 0.2", exact=True)).to_be_visible()


def test_all_shares_can_be_released_from_the_running_panel(page: LabPage) -> None:
    page.attach("work.ipynb", "0.2")
    page.page.get_by_role("tab", name=re.compile("Running Terminals and Kernels")).click()
    page.page.get_by_role("heading", name=re.compile("GPU Shares")).hover()
    page.page.get_by_role("button", name="Release All").click()
    page.page.get_by_role("dialog").get_by_role("button", name="Release All").click()
    page.page.get_by_role("tab", name="GPU pool").click()
    expect(page.state("work.ipynb")).to_have_text("parked")


def test_the_sidebar_is_where_it_was_after_a_reload(page: LabPage) -> None:
    page.attach("work.ipynb", "0.2")
    page.page.wait_for_timeout(2000)  # JupyterLab saves its layout after a pause.
    page.page.goto(page.lab.url("lab"))
    expect(page.sidebar).to_be_visible(timeout=30_000)
    expect(page.state("work.ipynb")).to_have_text("attached")


def test_ten_kernels_are_listed(page: LabPage) -> None:
    for _ in range(9):
        page.lab.stack.api("POST", "api/kernels", {"name": "python3"})
    rows = page.sidebar.get_by_role("list", name="Kernels", exact=True).locator("> li")
    expect(rows).to_have_count(10)
    rows.last.get_by_role("button", name=re.compile("^Attach")).scroll_into_view_if_needed()
    expect(rows.last.get_by_role("button", name=re.compile("^Attach"))).to_be_in_viewport()


def test_without_kernels_the_sidebar_says_what_to_do(lab: LabStack, open_page: Open) -> None:
    opened = open_page(lab)
    opened.page.goto(lab.url("lab?reset"))
    opened.open_sidebar()
    expect(opened.sidebar).to_contain_text("No kernel runs.")
    expect(opened.device(1)).to_be_visible()
