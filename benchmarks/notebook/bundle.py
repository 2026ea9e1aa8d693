"""How much JavaScript and CSS the extension brings, as it was built."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, Final

from benchmarks.notebook.problem import BenchError

_FOLDER: Final = Path(__file__).resolve().parents[2] / "jupyter_gpupool" / "labextension" / "static"
#: What only the chart library's own file has in it.
_CHART_LIBRARY: Final = re.compile(rb"u-inline|\.uplot\b")


def bundle(loaded: list[str]) -> dict[str, Any]:
    """Sizes in kB (1000 bytes), raw and compressed; `loaded` are the files that a page loads at its start.

    Raises:
        BenchError: the front end has not been built, or was built for development.
    """
    files = {path.name: path.read_bytes() for path in sorted(_FOLDER.glob("*.js"))}
    if not files:
        raise BenchError(f"The front end is not built: {_FOLDER} has no JavaScript.")
    if any(_FOLDER.glob("*.map")):
        raise BenchError("The front end was built for development; measure what build:prod makes.")
    chart = {name for name, text in files.items() if _CHART_LIBRARY.search(text)}
    own = {name: text for name, text in files.items() if name not in chart}
    return {
        "own_kb": _size(own.values()),
        "own_gzip_kb": _packed(own.values()),
        "chart_files": sorted(chart),
        "chart_kb": _size(files[name] for name in chart),
        "at_start_kb": _size(text for name, text in files.items() if name in loaded),
        "at_start_gzip_kb": _packed(text for name, text in files.items() if name in loaded),
        "at_start": sorted(name for name in files if name in loaded),
    }


def _size(texts: Any) -> float:
    return sum(len(text) for text in texts) / 1000


def _packed(texts: Any) -> float:
    return sum(len(gzip.compress(text)) for text in texts) / 1000
