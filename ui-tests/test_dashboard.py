"""The dashboard: opened by a link, from view to view and back, in the colours of the theme."""

from __future__ import annotations

import re
from collections.abc import Callable

from lab_page import LabPage
from playwright.sync_api import expect
from stack import LabStack

Open = Callable[..., LabPage]

#: What a canvas shows, and how much of it is not empty.
PAINTED = """
canvas => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let painted = 0;
  for (let at = 3; at < data.length; at += 4) painted += data[at] > 0;
  return [canvas.toDataURL(), painted];
}
"""


def choose_theme(page: LabPage, theme: str) -> None:
    page.menu("Settings")
    # What opens a further menu has no role of its own in JupyterLab.
    page.page.get_by_text("Theme", exact=True).click()
    page.page.get_by_text(theme, exact=True).click()


def test_a_link_opens_a_view_and_leads_on(lab: LabStack, open_page: Open) -> None:
    page = open_page(lab)
    node = lab.devices()[0]["node"]
    page.page.goto(lab.url(f"lab?gpupool=node/{node}&reset"))
    dashboard = page.page.get_by_role("region", name="GPU dashboard")
    expect(dashboard.get_by_role("heading", name=f"Node {node}")).to_be_visible(timeout=60_000)
    chart = dashboard.get_by_role("img", name=re.compile("^Compute. capacity: now [12]"))
    expect(chart).to_be_visible()
    expect(dashboard.get_by_role("link", name=f"{node}/0", exact=True)).to_be_visible()

    # It follows the theme: the same chart in other colours.
    canvas = chart.locator("canvas")
    expect(canvas).to_be_visible()
    light, painted = canvas.evaluate(PAINTED)
    assert painted > 500
    choose_theme(page, "JupyterLab Dark")
    expect(page.page.locator("body[data-jp-theme-light=false]")).to_be_attached()
    page.page.wait_for_function(
        "([canvas, before]) => !canvas.isConnected || canvas.toDataURL() !== before",
        arg=[canvas.element_handle(), light],
    )
    expect(canvas).to_be_visible()
    assert canvas.evaluate(PAINTED)[1] > 500
    choose_theme(page, "JupyterLab Light")

    # Each view has an address of its own; the browser's Back and a reload lead there again.
    dashboard.get_by_role("link", name="Cluster").click()
    expect(dashboard.get_by_role("heading", name="The whole pool")).to_be_visible()
    expect(page.page).to_have_url(re.compile(r"[?&]gpupool=cluster"))
    dashboard.get_by_role("button", name="Queue as a table").click()
    table = dashboard.get_by_role("region", name="Queue")
    expect(table.get_by_role("columnheader", name="waiting")).to_be_visible()
    page.page.go_back()
    expect(dashboard.get_by_role("heading", name=f"Node {node}")).to_be_visible()
    page.page.reload()
    expect(dashboard.get_by_role("heading", name=f"Node {node}")).to_be_visible(timeout=60_000)

    # What an administrator changes there: ui-tests/galata/tests/dashboard.spec.ts.
    dashboard.get_by_role("link", name="Quotas").click()
    expect(dashboard.get_by_role("cell", name="takes requests")).to_be_visible()


def test_the_launcher_opens_it(lab: LabStack, open_page: Open) -> None:
    page = open_page(lab)
    page.page.goto(lab.url("lab?reset"))
    page.page.get_by_role("button", name="GPU Dashboard").click(timeout=60_000)
    dashboard = page.page.get_by_role("region", name="GPU dashboard")
    expect(dashboard.get_by_role("img", name=re.compile("^Compute"))).to_be_visible()
