"""`make gpu-check-bundle`: what `make gpu-check` needs on a machine with a GPU, no network and no compiler.

The folder holds the native parts and the generated messages (``product.tar.gz``, unpacked at the checkout's root), the
wheels of the pool's packages, and the commit that they were made of. `run.sh` finds it where it was made.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.gpu_check.commit import commit

ROOT: Final = Path(__file__).resolve().parent.parent.parent
FOLDER: Final = ROOT / "build" / "gpu-check-bundle"
#: Without what stands in for a GPU, and what measures.
NATIVE: Final = ("bin/gpupool-worker", "client", "cudart", "libraries", "tls")
MESSAGES: Final = "server/gpupool/proto/gpupool/v1"
#: Programs on a GPU have their own, of 17 MB.
LEFT_OUT: Final = ("numpy",)
#: What some carriers take, with the checkout.
LIMIT_MIB: Final = 64


def product(root: Path, archive: Path) -> None:
    """Writes the native parts, stripped, and the generated messages, with paths from ``root``."""
    native = root / "server" / "gpupool" / "_native"
    with tempfile.TemporaryDirectory() as name, tarfile.open(archive, "w:gz") as packed:
        for part in NATIVE:
            source = native / part
            for file in sorted(source.iterdir()) if source.is_dir() else [source]:
                stripped = Path(name) / file.name
                shutil.copy2(file, stripped)
                if stripped.read_bytes()[:4] == b"\x7fELF":
                    subprocess.run(["strip", str(stripped)], check=True)
                packed.add(stripped, file.relative_to(root))
        for file in sorted((root / MESSAGES).glob("pool_pb2*.py")):
            packed.add(file, file.relative_to(root))


def packages(python: str) -> list[str]:
    """Names of the pool's packages and of all that they need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first = ["grpcio", "protobuf", *project["optional-dependencies"]["pool"]]
    missing, found = [Requirement(text) for text in first], set(LEFT_OUT)
    target = {"python_version": python, "python_full_version": f"{python}.0"}
    while missing:
        wanted = missing.pop()
        name = str(canonicalize_name(wanted.name))
        if name in found:
            continue
        found.add(name)
        for text in importlib.metadata.requires(name) or []:
            needed = Requirement(text)
            of_extras = ("", *wanted.extras)
            if needed.marker is None or any(
                needed.marker.evaluate(target | {"extra": extra}) for extra in of_extras
            ):
                missing.append(needed)
    return sorted(found - set(LEFT_OUT))


def locked(names: list[str]) -> list[str]:
    """With the versions of requirements.lock."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    versions = dict(line.split("==") for line in lines if "==" in line)
    return [f"{name}=={versions[name]}" for name in names]


def download(python: str, folder: Path) -> None:
    """Wheels for that Python on a machine like this one, with any glibc since CentOS 7's."""
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(34, 16, -1)]
    platforms += [f"manylinux2014_{machine}", f"manylinux1_{machine}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", python, "--dest", str(folder)]
    command += [word for name in platforms for word in ("--platform", name)]
    subprocess.run([*command, *locked(packages(python))], check=True)


def mib(files: list[Path]) -> float:
    return sum(file.stat().st_size for file in files if file.is_file()) / (1 << 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.12", help="version of the Python on the machine with the GPU")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    product(ROOT, FOLDER / "product.tar.gz")
    download(options.python, FOLDER / "wheels")
    (FOLDER / "commit").write_text(commit(ROOT) + "\n")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    size, tree = (
        mib(list(FOLDER.rglob("*"))),
        mib([ROOT / name for name in listed.stdout.split("\0") if name]),
    )
    print(f"{FOLDER.relative_to(ROOT)}: {size:.0f} MiB, with the checkout {size + tree:.0f} MiB")
    if size + tree > LIMIT_MIB:
        print(f"warning: more than {LIMIT_MIB} MiB together", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
