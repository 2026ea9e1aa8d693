"""Measurements that the pool's side runs without importing them."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from gpupool.bench import elsewhere
from gpupool.bench.elsewhere import GROUP, MeasurementMissing, measurement

ROOT = Path(__file__).resolve().parent.parent.parent


def installed(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    points = [EntryPoint(name, value, GROUP) for name, value in targets.items()]
    monkeypatch.setattr(
        elsewhere,
        "entry_points",
        lambda group, name: [p for p in points if (p.group, p.name) == (group, name)],
    )


def test_what_the_project_declares_can_be_called() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"][GROUP]
    assert declared
    for name, value in declared.items():
        assert callable(EntryPoint(name, value, GROUP).load())


def test_the_installed_one_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, notebook="json:dumps")
    assert measurement("notebook")(True) == "true"


def test_a_package_without_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(MeasurementMissing, match=r"'notebook'.*jupyter-gpupool"):
        measurement("notebook")


def test_what_it_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, notebook="no_such_module_here:main")
    with pytest.raises(MeasurementMissing, match=r"no_such_module_here is needed: pip install"):
        measurement("notebook")
