"""The quickstart with ten times as much training: enough to look at while it goes on."""

from __future__ import annotations

from pathlib import Path

from stack import ROOT

NOTEBOOK = "quickstart.ipynb"


def long_quickstart(folder: Path) -> None:
    """Writes it into `folder`, under its own name; it prints "epoch 100" when a quarter is done."""
    notebook = (ROOT / "examples" / NOTEBOOK).read_text()
    longer = notebook.replace("BATCH, EPOCHS, RATE = 128, 40, 0.5", "BATCH, EPOCHS, RATE = 128, 400, 0.5")
    longer = longer.replace("if epoch % 10 == 9", "if epoch % 100 == 99")
    assert longer != notebook, "the quickstart has changed: say here how to make it train longer"
    (folder / NOTEBOOK).write_text(longer)
