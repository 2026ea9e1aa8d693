"""A cell that asks for more memory than its share has: the numbers below it, and a button that gets enough."""

from __future__ import annotations

import re
from collections.abc import Callable

from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack, write_notebook

Open = Callable[..., LabPage]

SETUP = "import numpy as np\nfrom numba import cuda"
THREE_GIB = "big = cuda.device_array(3 << 30, np.uint8)\nprint('had', big.nbytes)"


def test_the_button_below_the_cell_has_its_line_ask_for_enough(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "large.ipynb", SETUP, f"%%gpu 0.2 --wait 10\n{THREE_GIB}")
    page = open_page(lab)
    page.open("large.ipynb")
    page.open_sidebar()
    page.run_and_wait(1, "NameError")
    expect(page.cell_errors).to_have_count(1)
    page.run_cell(0)
    page.run_cell(1)
    lacking = page.cell(1).locator(".jp-GpuPool-cellLacking")
    expect(lacking).to_contain_text("3 GiB asked")
    expect(lacking).to_contain_text("0 B used")
    button = lacking.get_by_role("button", name=re.compile(r"^Use %%gpu 0\.\d$"))
    share = button.inner_text().removeprefix("Use %%gpu ")
    button.click()
    expect(page.cell(1).locator(".cm-content")).to_contain_text(f"%%gpu {share} --wait 10")
    page.page.keyboard.press("Shift+Enter")
    expect(page.cell(1)).to_contain_text(f"had {3 << 30}", timeout=30_000)
    expect(page.cell(1).locator(".jp-GpuPool-cellLacking")).to_have_count(0)


def test_what_is_held_is_resized(lab: LabStack, open_page: Open) -> None:
    write_notebook(lab.folder / "held.ipynb", SETUP, THREE_GIB)
    page = open_page(lab)
    page.open("held.ipynb")
    page.open_sidebar()
    page.attach("held.ipynb", "0.2")
    expect(page.state("held.ipynb")).to_have_text("attached")
    page.run_cell(0)
    page.run_cell(1)
    button = page.cell(1).get_by_role("button", name=re.compile(r"^Resize to 0\.\d$"))
    share = button.inner_text().removeprefix("Resize to ")
    button.click()
    expect(page.kernel("held.ipynb")).to_contain_text(f"{share} of GPU")
    page.run_and_wait(1, f"had {3 << 30}")
