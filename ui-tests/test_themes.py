"""Light, dark, high contrast: the sidebar follows the theme, and an accessibility checker finds no fault."""

from __future__ import annotations

from collections.abc import Callable

import programs
import pytest
from accessibility import violations
from lab_page import LabPage
from stack import LabStack, write_notebook

#: The sidebar's element.
SIDEBAR = "gpupool-sidebar"

Open = Callable[..., LabPage]

#: Text of an element against the nearest ground that is not transparent: [selector, ratio].
CONTRAST = """
() => {
  // Mixed colours are written color(srgb 0.1 0.2 0.3), with channels up to 1.
  const channels = text => text.match(/[0-9.]+/g).map(Number)
    .map(v => text.startsWith('color(') ? v * 255 : v);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = node => {
    for (let n = node; n; n = n.parentElement) {
      const c = channels(getComputedStyle(n).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll('.jp-GpuPool *')].filter(node =>
    [...node.childNodes].some(c => c.nodeType === 3 && c.textContent.trim()) && node.offsetParent);
  return texts.map(node => {
    const a = luminance(channels(getComputedStyle(node).color));
    const b = luminance(ground(node));
    return [node.className || node.tagName, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
}
"""


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"])
def test_text_is_legible(lab: LabStack, open_page: Open, theme: str) -> None:
    lab.settings("@jupyterlab/apputils-extension:themes", {"theme": theme})
    write_notebook(lab.folder / "theme.ipynb", programs.ADD)
    page = open_page(lab)
    page.open("theme.ipynb")
    page.open_sidebar()
    page.attach("theme.ipynb", "0.3")
    page.page.wait_for_timeout(1000)

    ground = page.sidebar.evaluate("node => getComputedStyle(node).backgroundColor")
    dark = sum(int(part) for part in ground[4:-1].split(",")[:3]) < 3 * 128
    assert dark == ("Dark" in theme)
    ratios = page.page.evaluate(CONTRAST)
    assert len(ratios) > 15
    # 3:1 is the least for any text; grey hints of JupyterLab's own themes are near it.
    poor = {name: round(ratio, 2) for name, ratio in ratios if ratio < 3}
    assert poor == {}
    assert violations(page.page, f"#{SIDEBAR}") == []
