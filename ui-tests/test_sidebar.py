"""The sidebar: what the pool has, what kernels hold, and the buttons."""

from __future__ import annotations

import re

from lab_page import LabPage
from playwright.sync_api import expect


def test_a_cell_after_detach_says_how_to_attach(page: LabPage) -> None:
    page.attach("work.ipynb", "0.2")
    page.run_and_wait(0, "sum 768.0")
    page.press("work.ipynb", "Detach")
    expect(page.state("work.ipynb")).to_have_text("no GPU, memory kept")

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


def test_a_slider_stops_at_what_is_free(page: LabPage) -> None:
    for share in ("0.4", "0.9"):
        other = page.lab.stack.kernel()
        page.lab.stack.api("POST", f"gpupool/api/kernels/{other.id}/attach", {"share": share})
    page.attach("work.ipynb", "0.2")
    slider = page.kernel("work.ipynb").get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", "0.2 of a GPU; can grow to 0.6")
    slider.press("End")
    slider.press("Enter")
    expect(page.toolbar_button).to_have_text("0.6")
    expect(page.kernel("work.ipynb")).to_contain_text("Cannot grow now.")


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
