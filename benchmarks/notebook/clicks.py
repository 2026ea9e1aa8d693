"""From the click on Attach to the kernel that is attached, as the page sees it."""

from __future__ import annotations

import time
from typing import Final

from playwright.sync_api import Locator

from benchmarks.notebook.page import PATIENCE_MS, LabTab
from benchmarks.notebook.problem import BenchError

#: Between two clicks, seconds: the node makes its next worker ready meanwhile, as it would between people.
SETTLE_SECONDS: Final = 1.5

#: Presses the row's main button and notes when the row's state becomes `wanted`; ms, -1 when it does not.
_PRESS: Final = """([row, label, wanted, patience]) => new Promise(resolve => {
  const button = [...row.querySelectorAll('button')].find(
    one => (one.getAttribute('aria-label') ?? one.textContent).startsWith(label));
  const state = () => row.querySelector('[role=status][data-state]')?.dataset.state;
  if (!button || button.disabled) { resolve(-2); return; }
  const started = performance.now();
  const done = value => { watch.disconnect(); clearTimeout(timer); resolve(value); };
  const watch = new MutationObserver(() => {
    if (state() === wanted) { done(performance.now() - started); }
  });
  watch.observe(row, { subtree: true, childList: true, characterData: true, attributes: true });
  const timer = setTimeout(() => done(-1), patience);
  button.click();
})"""


def press(tab: LabTab, row: Locator, label: str, wanted: str) -> float:
    """Milliseconds from the click to the state. Raises BenchError when it does not come."""
    handle = row.element_handle()
    took = float(tab.page.evaluate(_PRESS, [handle, label, wanted, PATIENCE_MS]))
    if took < 0:
        what = "there is no such button" if took == -2 else "the state did not come"
        raise BenchError(f"{label} in the sidebar did not lead to {wanted}: {what}: {row.inner_text()}")
    return took


def attach_new(tab: LabTab, labels: list[str]) -> list[float]:
    """Attaches each kernel, none of which has a session yet; ms."""
    found = []
    for label in labels:
        time.sleep(SETTLE_SECONDS)
        found.append(press(tab, tab.kernel(label), "Attach", "attached"))
    return found


def attach_again(tab: LabTab, label: str, rounds: int) -> tuple[list[float], list[float]]:
    """Detaches and attaches one kernel; ms of the attaches and of the detaches."""
    attaches, detaches = [], []
    for _ in range(rounds):
        detaches.append(press(tab, tab.kernel(label), "Detach", "parked"))
        time.sleep(0.5)
        attaches.append(press(tab, tab.kernel(label), "Attach", "attached"))
        time.sleep(0.5)
    return attaches, detaches
