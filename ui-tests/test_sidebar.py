"""The sidebar: what the pool has, what kernels hold, and the buttons."""

from __future__ import annotations

import re

from lab_page import LabPage
from playwright.sync_api import expect


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
