"""The built widget: one module and one style sheet that a page gets, and nothing that they load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_gpupool.widget import usage
from jupyter_gpupool.widget.usage import GpuUsage, built


def test_the_widget_is_what_the_build_made() -> None:
    assert str(GpuUsage._esm) == built("usage.js")
    assert str(GpuUsage._css) == built("usage.css")


def test_it_is_one_module_with_one_export() -> None:
    text = built("usage.js")
    assert re.findall(r"\bimport\b\s*[({'\"*]", text) == []
    assert re.findall(r"\bexport\b\s*(?:default\b|\{[^}]*\})", text) == ["export default"]


def test_it_takes_nothing_from_the_network_but_the_server() -> None:
    text = built("usage.js")
    assert text.count("fetch(") == 1
    assert re.findall(r"https?://(?!www\.w3\.org)", text + built("usage.css")) == []
    assert re.findall(r"innerHTML|\beval\(|new Function", text) == []
    assert re.findall(r"@import|url\(", built("usage.css")) == []


def test_its_style_sheet_has_the_colours_that_all_views_share() -> None:
    css = built("usage.css")
    assert "--jp-gpupool-state-warned" in css
    assert ".jp-GpuUsage-chart" in css


def test_it_stays_small_as_each_widget_of_a_notebook_carries_it() -> None:
    assert len(built("usage.js")) <= 20_000
    assert len(built("usage.css")) <= 5_000


def test_a_checkout_that_is_not_built_says_what_to_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(usage, "STATIC", tmp_path)
    with pytest.raises(ImportError, match="make build"):
        built("usage.js")
