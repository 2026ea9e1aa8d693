"""What `make release` has put into `dist/`, installed into empty environments and used. `make release` runs it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
pytestmark = [pytest.mark.release, pytest.mark.timeout(5400)]


def the(pattern: str) -> Path:
    found = list(DIST.glob(pattern))
    assert len(found) == 1, f"make release first: {found}"
    return found[0]


def test_the_sums_are_those_of_the_files() -> None:
    lines = (DIST / "SHA256SUMS").read_text().splitlines()
    named = {name: digest for digest, name in (line.split("  ") for line in lines)}
    there = {
        str(path.relative_to(DIST))
        for path in DIST.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }
    assert set(named) == there
    for name, digest in named.items():
        assert hashlib.sha256((DIST / name).read_bytes()).hexdigest() == digest, name


def test_the_tag_is_true_to_the_newest_symbol_of_glibc() -> None:
    """Beside auditwheel: what `readelf` finds."""
    wheel = the("*.whl")
    tag = re.search(r"manylinux_2_(\d+)_x86_64", wheel.name)
    assert tag is not None
    newest = 0
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.infolist():
            data = archive.read(item)
            if data.startswith(b"\x7fELF"):
                found = re.findall(rb"GLIBC_2\.(\d+)\x00", data)
                newest = max([newest, *map(int, found)])
    assert newest == int(tag[1])


def test_the_wheel_is_small_enough() -> None:
    assert the("*.whl").stat().st_size <= 25_000_000


def test_a_package_index_is_given_no_link_that_leads_nowhere() -> None:
    with zipfile.ZipFile(the("*.whl")) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        page = archive.read(name).decode().partition("\n\n")[2]
    assert page.startswith("# jupyter-gpupool\n")
    assert "gpupool lab" in page
    targets = re.findall(r"\]\(([^)\s]+)", page)
    assert [target for target in targets if not target.startswith(("https://", "http://", "#"))] == []


def test_the_bill_names_what_is_linked_in_and_what_is_installed() -> None:
    bill = json.loads((DIST / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    names = {component["name"]: component.get("version", "") for component in bill["components"]}
    for name in ("openssl", "lz4", "zstd", "uplot", "grpcio", "jupyterlab", "numba-cuda"):
        assert names.get(name), name


def test_a_newcomer_needs_two_commands() -> None:
    """Installs the wheel into an empty environment, and runs the quickstart to its first GPU cell."""
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "first_cell.py"), str(the("*.whl"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(done.stdout)
    assert measured["commands"] == 2
    said = "\n".join(measured["printed"])
    assert "software GPU" in said or re.search(r"It lends \d+ GPU", said), said
    assert "quickstart.ipynb was copied" in said
    assert "device time" in measured["cell"]


def test_the_source_distribution_makes_a_wheel_that_works(tmp_path: Path) -> None:
    """It is compiled, which takes minutes; GPUPOOL_BUILD_JOBS says on how many processors."""
    environment = {**os.environ, "CCACHE_BASEDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    installed = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", f"{the('*.tar.gz')}[pool]"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stdout[-4000:] + installed.stderr[-4000:]
    program = (
        "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int();"
        "assert cuda.cuInit(0) == 0; assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0; print(count.value)"
    )
    done = subprocess.run(
        [str(python.with_name("gpupool")), "softgpu", "-n", "3", "--", str(python), "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr
    copied = subprocess.run(
        [str(python.with_name("gpupool")), "examples", str(tmp_path / "examples")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert copied.returncode == 0, copied.stderr
    assert (tmp_path / "examples" / "quickstart.ipynb").exists()
