"""A GPU kernel that never ends, and one that breaks its session: what the row says of them, Detach and Reset."""

from __future__ import annotations

import re
from collections.abc import Callable

import programs
import pytest
from lab_page import LabPage
from playwright.sync_api import Locator, expect
from stack import ROOT, LabStack, write_notebook

from tests.support.stack import wait_until

Open = Callable[..., LabPage]
LABEL = "long.ipynb"
#: The first use of a GPU compiles; the machine may be busy.
FIRST_MS = 120_000
PICTURES = ROOT / "test-results"


def picture(page: LabPage, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    page.page.screenshot(path=PICTURES / f"{name}.png")


@pytest.fixture
def page(lab: LabStack, open_page: Open) -> LabPage:
    write_notebook(lab.folder / LABEL, programs.FOREVER, programs.ADD, programs.OUT_OF_BOUNDS)
    opened = open_page(lab)
    opened.open(LABEL)
    opened.open_sidebar()
    opened.attach(LABEL, "0.2")
    return opened


def note(page: LabPage, kind: str) -> Locator:
    return page.kernel(LABEL).locator(f'[role="note"][data-kind="{kind}"]')


def runs_forever(page: LabPage) -> Locator:
    """Starts the endless kernel and waits until the row names it; the output of its cell."""
    output = page.run_cell(0)
    expect(page.kernel(LABEL)).to_contain_text(re.compile(r"% busy · .*forever.*, \d+ s"), timeout=FIRST_MS)
    return output


def confirm(page: LabPage, words: str, button: str) -> None:
    dialog = page.page.get_by_role("dialog")
    expect(dialog).to_contain_text(words)
    dialog.get_by_role("button", name=button, exact=True).click()


def session_id(page: LabPage) -> str | None:
    kernels = page.lab.stack.api("GET", "gpupool/api/kernels")["kernels"]
    found: str | None = kernels[0]["session_id"]
    return found


def test_an_endless_kernel_is_busy_and_named(page: LabPage) -> None:
    runs_forever(page)
    meter = page.kernel(LABEL).get_by_role("meter", name=re.compile("^Compute"))
    expect(meter).to_have_attribute("aria-valuenow", re.compile("^([5-9][0-9]|100)$"))
    picture(page, "busy-row")
    # Time goes on, and is charged while the kernel runs.
    seconds = page.lab.stack.api("GET", "gpupool/api/kernels")["kernels"][0]["usage"]["device_seconds"]
    assert seconds > 1


def test_detach_while_it_runs_drains_and_then_frees_the_share(page: LabPage) -> None:
    output = runs_forever(page)
    page.press(LABEL, "Detach")
    confirm(page, "forever", "Detach")
    expect(note(page, "draining")).to_contain_text(re.compile(r"^draining: .*forever.* since \d+ s"))
    released = page.kernel(LABEL).locator(".jp-GpuPool-released")
    assert "free again" not in released.inner_text()
    assert page.lab.free_milli() == 1800
    picture(page, "draining-row")
    expect(released).to_contain_text("free again")
    assert page.lab.free_milli() == 2000
    expect(note(page, "stopped")).to_contain_text("it goes on when a GPU is attached")
    picture(page, "stopped-row")
    expect(output).to_contain_text("Error", timeout=FIRST_MS)


def test_reset_ends_the_session_and_keeps_the_kernel(page: LabPage) -> None:
    output = runs_forever(page)
    before = session_id(page)
    page.press(LABEL, "Reset")
    confirm(page, "arrays in GPU memory are lost", "Cancel")
    assert session_id(page) == before
    page.press(LABEL, "Reset")
    confirm(page, "Python variables stay", "Reset")
    expect(page.state(LABEL)).to_have_text("no GPU")
    expect(page.kernel(LABEL)).to_contain_text("was reset")
    picture(page, "after-reset")
    expect(output).to_contain_text("Error", timeout=FIRST_MS)
    wait_until(lambda: page.lab.free_milli() == 2000, 20, "the share to be free")
    page.attach(LABEL, "0.2")
    assert session_id(page) not in (None, before)


def test_a_session_that_failed_is_red_until_it_is_reset(page: LabPage) -> None:
    output = page.run_cell(2)
    expect(page.state(LABEL)).to_have_text("failed", timeout=FIRST_MS)
    expect(note(page, "failed")).to_contain_text("illegal address")
    expect(page.toolbar_button).to_have_text("failed")
    expect(output).to_contain_text("ILLEGAL_ADDRESS")
    picture(page, "failed-row")
    note(page, "failed").get_by_role("button", name=re.compile("^Reset")).click()
    confirm(page, "arrays in GPU memory are lost", "Reset")
    expect(page.state(LABEL)).to_have_text("no GPU")
    page.attach(LABEL, "0.2")
