"""Whether a notebook with twenty widgets scrolls as smoothly as one without."""

from __future__ import annotations

import statistics
from typing import Any, Final

from playwright.sync_api import Browser

from benchmarks.notebook.page import LabTab
from benchmarks.notebook.stack import BenchStack

WIDGETS: Final = 20
#: A widget, or a block that is as high, and a page of text below each.
_WITH: Final = """\
from IPython.display import display, HTML
from jupyter_gpupool import GpuUsage
for number in range({count}):
    display(GpuUsage())
    display(HTML('<p style="height:300px">between</p>'))
"""
_WITHOUT: Final = """\
from IPython.display import display, HTML
for number in range({count}):
    display(HTML('<div style="height:190px; border: 1px solid gray">instead of a widget</div>'))
    display(HTML('<p style="height:300px">between</p>'))
"""
#: Scrolls up and down, some pixels each frame, and notes how long each frame took, ms.
_SCROLL: Final = """seconds => new Promise(resolve => {
  const box = [...document.querySelectorAll('.jp-Notebook, .jp-WindowedPanel-outer')]
    .find(one => one.scrollHeight > one.clientHeight + 100 && getComputedStyle(one).overflowY !== 'visible');
  const deltas = [];
  let before = performance.now(), step = 24, last = box.scrollTop;
  const end = before + 1000 * seconds;
  const frame = now => {
    deltas.push(now - before);
    before = now;
    box.scrollTop += step;
    if (box.scrollTop === last) { step = -step; }
    last = box.scrollTop;
    if (now < end) { requestAnimationFrame(frame); } else { resolve({ deltas: deltas.slice(2), height: box.scrollHeight }); }
  };
  requestAnimationFrame(now => { before = now; requestAnimationFrame(frame); });
})"""


def scrolling(running: Browser, stack: BenchStack, seconds: float, rounds: int) -> dict[str, Any]:
    """Frame times in both notebooks in turns, ms: median, 95th percentile, and how many took longer than 25."""
    stack.write_notebook("with.ipynb", _WITH.format(count=WIDGETS))
    stack.write_notebook("without.ipynb", _WITHOUT.format(count=WIDGETS))
    found: dict[str, list[float]] = {"with": [], "without": []}
    height = {}
    for _ in range(rounds):
        for name in ("with", "without"):
            tab = LabTab(running, stack, f"{name}.ipynb")
            output = tab.run_cell(0, "between")
            output.get_by_text("between").nth(WIDGETS - 1).wait_for(state="attached")
            if name == "with":
                output.get_by_role("region").nth(WIDGETS - 1).wait_for(state="attached")
                kernels = stack.api("GET", "gpupool/api/kernels")["kernels"]
                kernel = next(one for one in kernels if one["label"] == "with.ipynb")
                if not kernel["held"]:
                    stack.api("POST", f"gpupool/api/kernels/{kernel['kernel_id']}/attach", {"share": "0.2"})
            tab.page.wait_for_timeout(4000)
            answer = tab.page.evaluate(_SCROLL, seconds)
            found[name] += answer["deltas"]
            height[name] = answer["height"]
            tab.close()
    return {name: {**_summary(deltas), "height_px": height[name]} for name, deltas in found.items()}


def _summary(deltas: list[float]) -> dict[str, float]:
    return {
        "median_ms": statistics.median(deltas),
        "p95_ms": statistics.quantiles(deltas, n=20)[-1],
        "longer_than_25_ms_percent": 100 * sum(delta > 25 for delta in deltas) / len(deltas),
        "frames": len(deltas),
    }
