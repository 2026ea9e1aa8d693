"""The documentation site: `make docs` builds it, warnings are errors."""

from __future__ import annotations

import json
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

project = "jupyter-gpupool"
author = "jupyter-gpupool maintainers"
copyright = "jupyter-gpupool maintainers, Apache-2.0"
release = version = json.loads((_ROOT / "package.json").read_text())["version"]

extensions = ["myst_parser", "sphinx_copybutton", "sphinxcontrib.mermaid"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
# The same pages are read on the forge: links to headings are spelled as it does.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["mermaid"]
nitpicky = True

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
