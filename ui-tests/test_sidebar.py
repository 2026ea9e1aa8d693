"""The sidebar: what the pool has, what kernels hold, and the buttons."""

from __future__ import annotations

import re

from lab_page import LabPage
from playwright.sync_api import expect


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
    memory = page.kernel("work.ipynb").get_by_role("meter", name="GPU memory of work.ipynb")
    expect(memory).to_have_attribute("aria-valuenow", re.compile(r"^\d+$"))

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


def test_a_slider_resizes_by_keys_alone_and_keeps_the_focus(page: LabPage) -> None:
    page.attach("work.ipynb", "0.2")
    slider = page.kernel("work.ipynb").get_by_role("slider", name="Resize the share of work.ipynb")
    expect(slider).to_have_attribute("aria-valuetext", "0.2 of a GPU; up to 1 can be had")
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url) if "/resize" in request.url else None)

    page.share_input("work.ipynb").focus()
    page.page.keyboard.press("Shift+Tab")
    expect(slider).to_be_focused()
    for _ in range(3):
        page.page.keyboard.press("ArrowRight")
    expect(page.share_input("work.ipynb")).to_have_value("0.23")
    expect(page.toolbar_button).to_have_text("0.23")
    expect(slider).to_be_focused()
    assert len(asked) == 1
    assert page.lab.free_milli() == 1770


def test_a_slider_stops_at_what_is_free(page: LabPage) -> None:
    for share in ("0.4", "0.9"):
        other = page.lab.stack.kernel()
        page.lab.stack.api("POST", f"gpupool/api/kernels/{other.id}/attach", {"share": share})
    page.attach("work.ipynb", "0.2")
    slider = page.kernel("work.ipynb").get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", "0.2 of a GPU; up to 0.6 can be had")
    slider.press("End")
    slider.press("Enter")
    expect(page.toolbar_button).to_have_text("0.6")
    expect(page.kernel("work.ipynb")).to_contain_text("Nothing is free beside it.")


def test_charts_and_what_is_folded_are_as_they_were_after_a_reload(page: LabPage) -> None:
    page.attach("work.ipynb", "0.25")
    page.run_and_wait(0, "sum 768.0")
    network = page.kernel("work.ipynb").get_by_role("img", name=re.compile("^Network of work.ipynb"))
    # Something has been sent to the GPU within the window, and the line has more than one point.
    expect(network).to_have_accessible_name(re.compile(r"at most [1-9]"))
    expect(network.locator("path").nth(2)).to_have_attribute("d", re.compile("^M.*L"))

    with page.page.expect_response(lambda r: "/api/workspaces" in r.url and r.request.method == "PUT"):
        page.sidebar.get_by_role("button", name="Queue").press("Enter")
    expect(page.sidebar).not_to_contain_text("Nobody waits.")
    page.page.reload()
    expect(page.sidebar).to_be_visible()
    expect(network).to_have_accessible_name(re.compile(r"at most [1-9]"))
    expect(network.locator("path").nth(2)).to_have_attribute("d", re.compile("^M.*L"))
    expect(page.sidebar.get_by_role("button", name="Queue")).to_have_attribute("aria-expanded", "false")
    expect(page.sidebar.get_by_role("button", name=re.compile("^Pool"))).to_have_attribute(
        "aria-expanded", "true"
    )


def test_focus_stays_in_the_sidebar_when_a_kernel_ends(page: LabPage) -> None:
    other = page.lab.stack.kernel()
    row = page.kernel("python3")
    row.get_by_role("button", name=re.compile("^Attach")).focus()
    page.lab.stack.api("DELETE", f"api/kernels/{other.id}")
    expect(row).to_have_count(0)
    expect(page.sidebar.get_by_role("button", name=re.compile("^Kernels"))).to_be_focused()


def test_nothing_is_cut_off_in_a_narrow_sidebar_at_twice_the_size(page: LabPage) -> None:
    page.attach("work.ipynb", "0.25")
    # A browser at 200 % has half the pixels of the style sheet.
    page.page.set_viewport_size({"width": 600, "height": 430})
    # JupyterLab itself lets nobody drag it below 250; other front ends do.
    page.sidebar.evaluate("node => Object.assign(node.style, { minWidth: '180px', width: '180px' })")
    widths = page.sidebar.evaluate(
        """sidebar => [sidebar.clientWidth, ...[...sidebar.querySelectorAll('*')]
             .filter(node => node.offsetParent && getComputedStyle(node).position !== 'absolute')
             .map(node => Math.ceil(node.getBoundingClientRect().right
                                    - sidebar.getBoundingClientRect().left))]"""
    )
    assert 170 <= widths[0] <= 181
    assert max(widths[1:]) <= 181
