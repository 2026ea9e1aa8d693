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
