"""The widget's JavaScript, as the one module that a page loads.

A widget hands its page one text, and a page has no way back to the other files. So the files,
which are ordinary modules of one another, are put into one another's place here: their
dependencies first, without the lines that import, and only the last one exports.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
#: Each after those that it imports.
FILES: Final = (
    "server.js",
    "shared_usage.js",
    "words.js",
    "work.js",
    "elements.js",
    "chart.js",
    "live_view.js",
    "saved_view.js",
    "usage.js",
)
_IMPORT: Final = re.compile(r"^import \{[^}]*\} from '\./(?P<file>[a-z_]+\.js)';\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(async )?function |class |const )", re.MULTILINE)


@cache
def module_text() -> str:
    """All of :data:`FILES` as one ES module with the default export of a widget."""
    texts = [_EXPORT.sub("", _IMPORT.sub("", (_HERE / name).read_text())) for name in FILES]
    return "\n".join([*texts, "export default { render };\n"])
