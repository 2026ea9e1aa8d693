"""The sidebar: what the pool has, what kernels hold, and the buttons."""

from __future__ import annotations

import re
from collections.abc import Callable

import programs
import pytest
from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack, write_notebook

Open = Callable[..., LabPage]


@pytest.fixture
def page(lab: LabStack, open_page: Open) -> LabPage:
    write_notebook(lab.folder / "work.ipynb", programs.ADD, programs.ADD_AGAIN)
    opened = open_page(lab)
    opened.open("work.ipynb")
    opened.open_sidebar()
    expect(opened.kernel("work.ipynb")).to_be_visible()
    return opened


def test_both_devices_are_shown_with_what_is_free(page: LabPage) -> None:
    expect(page.sidebar.get_by_role("button", name="Pool 2 of 2 free")).to_be_visible()
    for number in (0, 1):
        device = page.device(number)
        expect(device).to_contain_text("software GPU")
        expect(device).to_contain_text("1 free")
        meter = device.get_by_role("meter")
        expect(meter).to_have_attribute("aria-valuenow", "0")
    expect(page.sidebar).to_contain_text("Nobody waits.")


def test_attach_run_detach(page: LabPage) -> None:
    page.attach("work.ipynb", "0.25")

    mine = page.sidebar.get_by_role("list", name=re.compile("^Shares of ")).get_by_role("listitem")
    expect(mine).to_have_count(1)
    expect(mine).to_contain_text("work.ipynb (you)")
    expect(mine).to_contain_text("0.25")
    expect(page.sidebar.get_by_role("button", name="Pool 1.75 of 2 free")).to_be_visible()
    expect(page.toolbar_button).to_have_text("0.25")
    assert page.lab.free_milli() == 1750

    page.run_and_wait(0, "sum 768.0")
    expect(page.kernel("work.ipynb").get_by_role("meter")).to_have_attribute(
        "aria-valuenow", re.compile(r"^\d+$")
    )

    page.press("work.ipynb", "Detach")
    expect(page.state("work.ipynb")).to_have_text("parked")
    expect(page.sidebar.get_by_role("button", name="Pool 2 of 2 free")).to_be_visible()
    assert page.lab.free_milli() == 2000


def test_device_memory_outlives_a_detach(page: LabPage) -> None:
    page.attach("work.ipynb", "0.2")
    page.run_and_wait(0, "sum 768.0")
    page.press("work.ipynb", "Detach")
    expect(page.state("work.ipynb")).to_have_text("parked")

    page.attach("work.ipynb", "0.2")
    page.run_and_wait(1, "sum 1024.0")


def test_a_cell_after_detach_says_how_to_attach(page: LabPage) -> None:
    page.attach("work.ipynb", "0.2")
    page.run_and_wait(0, "sum 768.0")
    page.press("work.ipynb", "Detach")
    expect(page.state("work.ipynb")).to_have_text("parked")

    page.run_and_wait(1, re.compile("%%gpu 0.2"))


def test_an_attached_share_can_be_resized(page: LabPage) -> None:
    page.attach("work.ipynb", "0.2")
    page.share_input("work.ipynb").fill("50%")
    page.press("work.ipynb", "Resize")
    expect(page.toolbar_button).to_have_text("0.5")
    expect(page.share_input("work.ipynb")).to_have_value("0.5")
    assert page.lab.free_milli() == 1500


def test_a_share_that_cannot_be_is_refused_before_it_is_asked_for(page: LabPage) -> None:
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url) if "/attach" in request.url else None)
    for share, hint in {
        "banana": "Not a share",
        "1.7": "at most 1",
        "0": "Zero",
        "0.0001": "steps are 0.001",
        "": "Say how much",
    }.items():
        page.share_input("work.ipynb").fill(share)
        page.press("work.ipynb", "Attach")
        expect(page.kernel("work.ipynb").get_by_role("alert")).to_contain_text(hint)
        expect(page.share_input("work.ipynb")).to_have_attribute("aria-invalid", "true")
        expect(page.share_input("work.ipynb")).to_be_focused()
    assert asked == []
    assert page.lab.free_milli() == 2000


def test_memory_that_no_device_has_is_refused_with_numbers(page: LabPage) -> None:
    page.share_input("work.ipynb").fill("100GiB")
    page.press("work.ipynb", "Attach")
    alert = page.kernel("work.ipynb").get_by_role("alert")
    expect(alert).to_contain_text(re.compile(r"\d"))
    expect(page.state("work.ipynb")).to_have_text("no GPU")


def test_a_request_that_does_not_fit_waits_in_the_queue_and_can_be_withdrawn(page: LabPage) -> None:
    others = [page.lab.stack.kernel() for _ in range(2)]
    for other in others:
        page.lab.stack.api("POST", f"gpupool/api/kernels/{other.id}/attach", {"share": "0.9"})
    expect(page.sidebar.get_by_role("button", name="Pool 0.2 of 2 free")).to_be_visible()

    page.share_input("work.ipynb").fill("0.5")
    page.press("work.ipynb", "Attach")
    expect(page.state("work.ipynb")).to_have_text("queued")
    expect(page.kernel("work.ipynb")).to_contain_text(re.compile(r"Place 1 · .*\d"))
    queue = page.sidebar.get_by_role("list", name="Queue")
    expect(queue.get_by_role("listitem")).to_have_count(1)
    expect(queue).to_contain_text("work.ipynb (you)")

    page.press("work.ipynb", "Cancel")
    expect(page.state("work.ipynb")).to_have_text("no GPU")
    expect(page.sidebar).to_contain_text("Nobody waits.")


def test_a_queued_request_is_attached_when_room_is_made(page: LabPage) -> None:
    others = [page.lab.stack.kernel() for _ in range(2)]
    for other in others:
        page.lab.stack.api("POST", f"gpupool/api/kernels/{other.id}/attach", {"share": "0.9"})
    page.share_input("work.ipynb").fill("0.5")
    page.press("work.ipynb", "Attach")
    expect(page.state("work.ipynb")).to_have_text("queued")

    page.lab.stack.api("POST", f"gpupool/api/kernels/{others[0].id}/detach", {})
    expect(page.state("work.ipynb")).to_have_text("attached")


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
