"""The main job as a new user does it: open the quickstart, run all cells, look at the sidebar and the widget."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable

import pytest
from lab_page import LabPage
from long_quickstart import long_quickstart
from playwright.sync_api import expect
from stack import ROOT, LabStack

Open = Callable[..., LabPage]


@pytest.mark.timeout(300)
def test_the_quickstart_trains_under_two_minutes_and_everything_shows_it(
    lab: LabStack, open_page: Open
) -> None:
    shutil.copy(ROOT / "examples" / "quickstart.ipynb", lab.folder)
    page = open_page(lab)
    page.open("quickstart.ipynb")
    page.open_sidebar()
    expect(page.kernel("quickstart.ipynb")).to_be_visible()

    started = time.monotonic()
    page.run_all()
    widget = page.page.get_by_role("region", name="GPU use of this kernel")
    notebook = page.page.get_by_role("feed", name="Cells")
    expect(notebook).to_contain_text(re.compile(r"accuracy on the GPU: 0\.9[3-9]"), timeout=120_000)
    assert time.monotonic() - started < 120
    expect(notebook).to_contain_text(re.compile(r"epoch  40  loss"))
    expect(notebook).to_contain_text(re.compile(r"device time .*waits? for the GPU", re.DOTALL))
    assert page.cell_errors.all_inner_texts() == []

    # The widget has seen the device at work: the chart keeps what the figures showed for a moment.
    widget.scroll_into_view_if_needed()
    chart = widget.get_by_role("img", name=re.compile(r"five minutes until .*, [1-9]\d* % on average"))
    expect(chart).to_be_attached()

    expect(page.state("quickstart.ipynb")).to_have_text("no GPU, memory kept")
    expect(page.sidebar.get_by_role("button", name="Pool 2 of 2 GPUs free")).to_be_visible()


@pytest.mark.timeout(300)
def test_sidebar_toolbar_and_widget_show_the_training_while_it_goes_on(
    lab: LabStack, open_page: Open
) -> None:
    long_quickstart(lab.folder)
    page = open_page(lab)
    page.open("quickstart.ipynb")
    page.open_sidebar()
    expect(page.kernel("quickstart.ipynb")).to_be_visible()

    page.run_all()
    expect(page.state("quickstart.ipynb")).to_have_text("attached", timeout=60_000)
    expect(page.toolbar_button).to_have_text("0.2")
    expect(page.kernel("quickstart.ipynb")).to_contain_text("0.2 of GPU")
    widget = page.page.get_by_role("region", name="GPU use of this kernel")
    # Live only where it can be seen.
    widget.scroll_into_view_if_needed()
    expect(widget.get_by_role("status")).to_have_text("attached")
