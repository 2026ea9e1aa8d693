"""The documentation site: `make docs` builds it, warnings are errors."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
# The program's own modules, for the Python API. `make docs` has written reference/generated before.
sys.path[:0] = [str(_ROOT / "server"), str(_ROOT)]

project = "jupyter-gpupool"
author = "jupyter-gpupool maintainers"
copyright = "jupyter-gpupool maintainers, Apache-2.0"
release = version = json.loads((_ROOT / "package.json").read_text())["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib.mermaid",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
# The same pages are read on the forge: links to headings are spelled as it does.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["mermaid"]
nitpicky = True
# Signatures name types of other packages, and of modules that have no page.
nitpick_ignore_regex = [("py:.*", ".*")]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"

html_theme = "pydata_sphinx_theme"
html_title = "jupyter-gpupool"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": True,
    "header_links_before_dropdown": 6,
}
html_show_sourcelink = False
# Links that need the network are checked apart, by `make docs-links`.
linkcheck_timeout = 20
linkcheck_anchors = False

_FORGE = "https://github.com/jupyter-gpupool/jupyter-gpupool/blob/main"
_LINK_OUT = re.compile(r"(?<=\]\()(?!\w+:)([^()\s#]*)")


def links_to_the_forge(source: str, page: Path) -> str:
    """Links that leave docs/ (folders of sources, notebooks) work on the forge as they are; the site sends readers there."""

    def rewritten(match: re.Match[str]) -> str:
        target = (page.parent / match[1]).resolve()
        if not match[1] or target.is_relative_to(_ROOT / "docs") or not target.is_relative_to(_ROOT):
            return match[0]
        return f"{_FORGE}/{target.relative_to(_ROOT)}"

    return _LINK_OUT.sub(rewritten, source)


def setup(app: Any) -> None:
    """Called by Sphinx."""

    def read(_app: Any, name: str, content: list[str]) -> None:
        content[0] = links_to_the_forge(content[0], _ROOT / "docs" / f"{name}.md")

    app.connect("source-read", read)
