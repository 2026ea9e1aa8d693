"""Much of everything: what concerns a person is seen without scrolling through what does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import programs
import pytest
from lab_page import KERNEL_MS, LabPage
from playwright.sync_api import expect
from stack import LabStack, write_notebook

Open = Callable[..., LabPage]
FRONT = "front.ipynb"


@pytest.fixture
def crowd() -> Iterator[LabStack]:
    """A pool of 3 × 16 GPUs."""
    with (
        LabStack("--software-gpus", "16") as lab,
        lab.second_node("gpu-a", 8192, gpus=16),
        lab.second_node("gpu-b", 8192, gpus=16),
    ):
        yield lab


def open_front(lab: LabStack, open_page: Open, *cells: str) -> LabPage:
    write_notebook(lab.folder / FRONT, *(cells or (programs.ADD,)))
    page = open_page(lab)
    page.open(FRONT)
    page.open_sidebar()
    expect(page.kernel(FRONT)).to_be_visible()
    return page


def test_the_notebook_in_front_comes_first_and_the_others_take_a_line_each(
    lab: LabStack, open_page: Open
) -> None:
    held = lab.start_notebook("held.ipynb", "0.3")
    for number in range(5):
        lab.start_notebook(f"bare{number}.ipynb")
    page = open_front(lab, open_page)
    first = page.sidebar.get_by_role("list", name="Kernels", exact=True).get_by_role("listitem").first
    expect(first).to_have_attribute("aria-label", FRONT)
    expect(first).to_contain_text("in front")
    line = page.kernel("held.ipynb")
    expect(line).to_contain_text("0.3")
    box = line.bounding_box()
    assert box is not None
    assert box["height"] < 32

    # Those without a GPU are folded; one of them is attached from its line, and is a line above then.
    page.sidebar.get_by_role("button", name="5 kernels without a GPU").click()
    others = page.sidebar.get_by_role("list", name="Kernels without a GPU")
    others.get_by_role("button", name="Attach a GPU to bare3.ipynb").click()
    expect(page.kernel("bare3.ipynb")).to_contain_text("0.2")
    expect(page.sidebar.get_by_role("button", name=re.compile("^Kernels"))).to_contain_text(
        "2 of 7 have a GPU"
    )

    # Another document comes to the front, and is the first.
    page.kernel("held.ipynb").get_by_role("button", name="held.ipynb", exact=True).click()
    expect(first).to_have_attribute("aria-label", "held.ipynb", timeout=KERNEL_MS)
    expect(page.kernel("held.ipynb").get_by_role("slider")).to_be_visible()
    lab.stack.api("POST", f"gpupool/api/kernels/{held}/detach", {})
    expect(
        page.kernel("held.ipynb").get_by_role("button", name="Undo the release of held.ipynb")
    ).to_be_visible()


def test_the_introduction_is_put_away_for_good(lab: LabStack, open_page: Open) -> None:
    lab.settings("jupyter-gpupool:plugin", {})
    page = open_front(lab, open_page)
    introduction = page.sidebar.get_by_role("region", name="Introduction")
    expect(introduction).to_contain_text("%%gpu 0.2")
    with page.page.expect_response(lambda r: "/api/settings" in r.url and r.request.method == "PUT"):
        introduction.get_by_role("button", name="Got it").click()
    expect(introduction).to_have_count(0)
    page.page.goto(lab.url(f"lab/tree/{FRONT}?reset"))
    page.wait_kernel()
    page.open_sidebar()
    expect(page.kernel(FRONT)).to_be_visible()
    expect(introduction).to_have_count(0)


def test_a_waiting_cell_takes_what_is_free_and_one_is_told_who_holds_the_rest(
    lab: LabStack, open_page: Open
) -> None:
    lab.start_notebook("rival-a.ipynb", "0.5")
    lab.start_notebook("rival-b.ipynb", "0.6")
    page = open_front(lab, open_page, f"%%gpu 0.8\n{programs.ADD}", "%%gpu 0.8\nprint('had', 'all')")
    page.run_cell(0)
    row = page.kernel(FRONT)
    expect(page.state(FRONT)).to_have_text("queued")
    # One of the two is enough; it is named as a person would.
    expect(row).to_contain_text(re.compile(r"you hold 0\.[56]0 in rival-[ab]\.ipynb"))
    row.get_by_role("button", name=re.compile(r"^Take 0\.5 now")).click()
    expect(page.cell(0)).to_contain_text("sum 768.0", timeout=KERNEL_MS)
    expect(page.cell(0)).to_contain_text("0.5 software GPU")

    page.run_cell(1)
    expect(page.state(FRONT)).to_have_text("queued")
    row.get_by_role("button", name=re.compile(r"^Detach the GPU from rival-")).click()
    expect(page.cell(1)).to_contain_text("had all", timeout=KERNEL_MS)


def test_a_large_pool_is_a_strip_for_each_node_and_can_be_filtered(crowd: LabStack, open_page: Open) -> None:
    crowd.reserve("1", "maria", "train.ipynb")
    page = open_front(crowd, open_page)
    page.attach(FRONT, "0.25")
    strips = page.sidebar.get_by_role("meter", name=re.compile("^Compute in use on node"))
    expect(strips).to_have_count(3)
    bodies = page.sidebar.get_by_role("list", name=re.compile("^Devices of"))
    # Of the node with the own share only that device is unfolded.
    expect(bodies).to_have_count(1)
    expect(bodies.get_by_role("meter")).to_have_count(1)
    heights = page.sidebar.evaluate("node => [node.scrollHeight, node.clientHeight]")
    assert heights[0] <= heights[1], "the sidebar scrolls"

    page.sidebar.get_by_role("searchbox", name="Filter the GPUs").fill("maria")
    expect(bodies).to_have_count(1)
    expect(bodies).to_contain_text("0 free")
    page.sidebar.get_by_role("searchbox", name="Filter the GPUs").fill("gpu-b free")
    expect(page.sidebar.get_by_role("group", name="Node gpu-b")).to_be_visible()
    expect(page.sidebar.get_by_role("group", name="Node gpu-a")).to_have_count(0)
