"""`gpupool bench` finds its measurements in a checkout, and says what to do where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gpupool
import pytest
from gpupool.cli import measurements
from gpupool.cli.measurements import MeasurementMissingError, measurement


@pytest.mark.parametrize(
    "name", ["wire", "roundtrips", "fairness", "softgpu", "park", "openb", "replay", "notebook.main"]
)
def test_each_has_a_main(name: str) -> None:
    assert callable(measurement(name).main)


def test_without_a_checkout_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "PACKAGE", "no_benchmarks_here")
    with pytest.raises(
        MeasurementMissingError, match=r"git clone .* make build, then .venv/bin/gpupool bench wire\.$"
    ):
        measurement("wire")


def test_somebody_elses_package_of_that_name_is_no_checkout(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    package = Path(str(gpupool.__file__)).parent.parent
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(package)!r}]; from gpupool.cli.main import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code, "bench", "wire"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert "git clone" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_it_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "half_benchmarks").mkdir()
    (tmp_path / "half_benchmarks" / "notebook.py").write_text("import no_such_module_here\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(measurements, "PACKAGE", "half_benchmarks")
    with pytest.raises(MeasurementMissingError, match=r"no_such_module_here is needed: pip install"):
        measurement("notebook")
