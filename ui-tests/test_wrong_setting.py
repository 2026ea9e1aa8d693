"""A server with a wrong setting: the page says which, and is otherwise as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from lab_page import LabPage
from playwright.sync_api import expect
from stack import ROOT, LabStack, write_notebook

MISSING = "/nowhere/token"


@pytest.fixture
def misconfigured() -> Iterator[LabStack]:
    lab = LabStack()
    # A pool of elsewhere: of its own `gpupool lab` needs no token.
    lab.stack.pool_options = ()
    lab.stack.environment["GPUPOOL_ENDPOINT"] = "127.0.0.1:1"
    folder = lab.stack.home / "jc"
    folder.mkdir(mode=0o700)
    (folder / "jupyter_server_config.py").write_text(f"c.GpuPoolExtension.token_file = {MISSING!r}\n")
    with lab:
        yield lab


def test_the_headline_names_the_setting(misconfigured: LabStack, open_page: Callable[..., LabPage]) -> None:
    write_notebook(misconfigured.folder / "work.ipynb", "%%gpu 0.2\nprint('not run')")
    page = open_page(misconfigured)
    failed: list[str] = []
    page.page.on(
        "response",
        lambda answer: (
            failed.append(answer.url) if answer.status >= 400 and "gpupool/api" in answer.url else None
        ),
    )
    page.open("work.ipynb")
    page.open_sidebar()
    headline = page.sidebar.get_by_role("alert")
    expect(headline).to_contain_text("This server cannot ask the pool")
    expect(headline).to_contain_text(MISSING)
    expect(headline).to_contain_text("c.GpuPoolExtension.token_file")
    expect(page.kernel("work.ipynb")).to_be_visible()
    (ROOT / "test-results").mkdir(exist_ok=True)
    page.page.screenshot(path=ROOT / "test-results" / "wrong-setting.png")
    page.run_and_wait(0, "c.GpuPoolExtension.token_file")
    expect(page.cell_errors).to_have_count(1)
    assert failed == []
    log = (misconfigured.stack.home / "logs" / "jupyter.log").read_text()
    assert log.count("GPU pool ") == 1
