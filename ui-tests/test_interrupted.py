"""A cell that waits behind a GPU kernel that never ends: interrupted once it says what runs, twice it ends; the kernel lives."""

from __future__ import annotations

import re
from collections.abc import Callable

import programs
import pytest
from lab_page import LabPage
from playwright.sync_api import expect
from stack import ROOT, LabStack, write_notebook

from tests.support.stack import wait_until

Open = Callable[..., LabPage]
LABEL = "interrupted.ipynb"
#: The first use of a GPU compiles; the machine may be busy.
FIRST_MS = 120_000
PICTURES = ROOT / "test-results"
KEPT = "variable = 'kept'\n"


def interrupt(page: LabPage) -> None:
    page.page.get_by_role("button", name="Interrupt the kernel").click()


@pytest.mark.parametrize("attached", ["attached by the sidebar", "by the cell"])
def test_two_interrupts_end_the_session_and_the_next_cell_computes(
    lab: LabStack, open_page: Open, attached: str
) -> None:
    magic = "%%gpu 0.2\n" if attached == "by the cell" else ""
    cells = (magic + programs.FOREVER, magic + programs.ADD, "print('still', variable)", KEPT)
    write_notebook(lab.folder / LABEL, *cells)
    page = open_page(lab)
    page.open(LABEL)
    page.open_sidebar()
    page.run_cell(3)
    if not magic:
        page.attach(LABEL, "0.2")
    output = page.run_cell(0)
    expect(page.kernel(LABEL)).to_contain_text(re.compile(r"% busy · .*forever.*, \d+ s"), timeout=FIRST_MS)
    interrupt(page)
    expect(output).to_contain_text(re.compile(r'kernel "forever" \(since \d+ s\)\. Interrupt again'))
    page.page.screenshot(path=PICTURES / "interrupted-once.png")
    interrupt(page)
    expect(output).to_contain_text("KeyboardInterrupt")
    page.expect_done(0)
    wait_until(lambda: page.lab.free_milli() == 2000, 20, "the share to be free")
    page.page.screenshot(path=PICTURES / "interrupted-twice.png")
    page.run_and_wait(2, "still kept")
    if not magic:
        page.attach(LABEL, "0.2")
    page.run_and_wait(1, "sum 768.0", milliseconds=FIRST_MS)
    page.page.screenshot(path=PICTURES / "after-interrupts.png")
