"""An unused GPU: a warning with a countdown, and Keep; its release is among the tests of Galata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import programs
import pytest
from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack, write_notebook

Open = Callable[..., LabPage]


@pytest.fixture(scope="module")
def hasty() -> Iterator[LabStack]:
    """Warns after 8 s without use and releases 12 s later."""
    with LabStack("--idle-seconds", "20", "--warn-seconds", "12") as lab:
        yield lab


@pytest.fixture
def page(hasty: LabStack, open_page: Open) -> Iterator[LabPage]:
    write_notebook(
        hasty.folder / "idle.ipynb",
        programs.ADD,
        "print('variable', kept.size)",
        programs.ADD_AGAIN,
        "import time; time.sleep(25); print('awake')",
    )
    opened = open_page(hasty)
    opened.open("idle.ipynb")
    opened.open_sidebar()
    opened.attach("idle.ipynb", "0.2")
    yield opened
    hasty.shut_kernels_down()


def seconds_left(page: LabPage) -> int:
    text = page.kernel("idle.ipynb").get_by_role("timer").inner_text()
    minutes, seconds = text.split(":")
    return 60 * int(minutes) + int(seconds)


def test_the_warning_counts_down_and_keep_ends_it(page: LabPage) -> None:
    expect(page.state("idle.ipynb")).to_have_text("goes back soon")
    notification = page.notification("idle.ipynb does not use its GPU")
    expect(notification).to_be_visible()
    expect(notification).to_contain_text(re.compile(r"gives it back in \d+ s"))
    first = seconds_left(page)
    assert 1 <= first <= 12
    page.page.wait_for_timeout(2500)
    assert seconds_left(page) < first

    page.press("idle.ipynb", "Keep")
    expect(page.state("idle.ipynb")).to_have_text("attached")
    expect(notification).to_have_count(0)
    page.page.wait_for_timeout(13_000)
    expect(page.state("idle.ipynb")).to_have_text("attached")


def test_keep_works_from_the_notification(page: LabPage) -> None:
    notification = page.notification("idle.ipynb does not use its GPU")
    notification.get_by_role("button", name="Keep").click()
    expect(page.state("idle.ipynb")).to_have_text("attached")
    expect(notification).to_have_count(0)


def test_a_running_cell_is_not_warned(page: LabPage) -> None:
    output = page.run_cell(3)
    page.page.wait_for_timeout(22_000)
    expect(page.state("idle.ipynb")).to_have_text("attached")
    expect(output).to_contain_text("awake")
