"""The check for machines with a GPU: what a machine without a compiler does, and what the bundle for it has."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.gpu_check import bundle

ROOT = Path(bundle.ROOT)


class Machine:
    """A checkout of `run.sh` alone, with programs in PATH that say what they were asked.

    The Python finds whatever it is asked for, installs nothing, and runs the check by printing its arguments.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.worker = root / "server/gpupool/_native/bin/gpupool-worker"
        (root / "tests/gpu_check").mkdir(parents=True)
        shutil.copy(ROOT / "tests/gpu_check/run.sh", root / "tests/gpu_check")
        for folder in ("bin", "empty"):
            (root / folder).mkdir()
        self.program("cmake", "echo no compiler; exit 1")
        self.program(
            "python",
            f'case "$*" in *tarfile*|*zipfile*) exec {sys.executable} "$@";; *"-m pip"*) exit "${{PIP:-1}}";;\n'
            '*find_gpu*) exit "${GPU:-0}";; *grpc_tools*) exit 1;; *) echo "check: $*";; esac',
        )

    def program(self, name: str, does: str) -> None:
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/bash\n{does}\n")
        file.chmod(0o755)

    def has_native(self) -> None:
        self.worker.parent.mkdir(parents=True)
        self.worker.touch(mode=0o755)

    def has_bundle(self, content: str) -> None:
        folder = self.root / "build/gpu-check-bundle"
        (folder / "wheels").mkdir(parents=True, exist_ok=True)
        made = self.root / "made"
        made.write_text(content)
        made.chmod(0o755)
        with tarfile.open(folder / "product.tar.gz", "w:gz") as archive:
            archive.add(made, self.worker.relative_to(self.root))
        with contextlib.suppress(FileExistsError):
            shutil.make_archive(str(folder / "wheels" / "one"), "zip", self.root / "tests")
            (folder / "wheels" / "one.zip").rename(folder / "wheels" / "one.whl")

    def check(self, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "HOME": str(self.root)}
        environment["GPU_CHECK_PYTHON"] = str(self.root / "bin" / "python")
        return subprocess.run(
            ["bash", str(self.root / "tests/gpu_check/run.sh"), "--only", "one"],
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


class TestAMachine:
    @pytest.fixture
    def machine(self, tmp_path: Path) -> Machine:
        return Machine(tmp_path)

    def test_with_native_parts_needs_no_compiler(self, machine: Machine) -> None:
        machine.has_native()
        done = machine.check()
        assert done.returncode == 0, done.stderr
        assert "-m tests.gpu_check.check --driver nvidia --spent" in done.stdout
        assert "--only one" in done.stdout
        assert machine.check(GPU_CHECK_BUILD="always").returncode == 1

    def test_without_any_compiles_them(self, machine: Machine) -> None:
        done = machine.check()
        assert done.returncode == 1
        assert "no compiler" in done.stdout

    def test_with_a_bundle_needs_no_compiler_and_no_pip(self, machine: Machine) -> None:
        machine.has_bundle("first")
        assert machine.check().returncode == 0
        assert machine.worker.read_text() == "first"
        assert (machine.root / "build/gpu-check/site/gpu_check/run.sh").exists()
        machine.has_bundle("second")
        assert machine.check().returncode == 0
        assert machine.worker.read_text() == "second"

    def test_leaves_what_was_built_there_alone(self, machine: Machine) -> None:
        machine.has_native()
        machine.has_bundle("bundled")
        assert machine.check().returncode == 0
        assert machine.worker.read_text() == ""

    def test_without_a_gpu_has_nothing_to_check(self, machine: Machine) -> None:
        machine.has_native()
        assert machine.check(GPU="1").returncode == 0
        assert machine.check(GPU="1", GPU_CHECK_REQUIRE="1").returncode == 1


class TestTheBundle:
    def test_has_what_runs_on_a_gpu(self, tmp_path: Path) -> None:
        native = tmp_path / "server/gpupool/_native"
        for name in (
            *(
                "bin/gpupool-worker",
                "bin/gpupool-bench-wire",
                "client/libcuda.so.1",
                "cudart/libcudart.so.13",
            ),
            *("libraries/libcublas.so.13", "tls/libgpupool_tls.so", "softgpu/libcuda.so.1", "compat/libx.so"),
        ):
            (native / name).parent.mkdir(parents=True, exist_ok=True)
            (native / name).write_text(name)
        messages = tmp_path / bundle.MESSAGES
        messages.mkdir(parents=True)
        for name in ("pool_pb2.py", "pool_pb2_grpc.py", "pool_pb2.pyi"):
            (messages / name).touch()
        bundle.product(tmp_path, tmp_path / "product.tar.gz")
        with tarfile.open(tmp_path / "product.tar.gz") as archive:
            names = {
                member.name.removeprefix("server/gpupool/").removeprefix("_native/") for member in archive
            }
        assert names == {
            *(
                "bin/gpupool-worker",
                "client/libcuda.so.1",
                "cudart/libcudart.so.13",
                "libraries/libcublas.so.13",
            ),
            *("tls/libgpupool_tls.so", "proto/gpupool/v1/pool_pb2.py", "proto/gpupool/v1/pool_pb2_grpc.py"),
        }

    def test_has_the_packages_of_the_pool_and_theirs(self) -> None:
        names = bundle.packages("3.12")
        wanted = {
            "grpcio",
            "grpcio-health-checking",
            "protobuf",
            "cryptography",
            "cffi",
            "pycparser",
            "sqlalchemy",
        }
        assert wanted | {"stamina", "tenacity", "typer", "mdurl"} <= set(names)
        assert "numpy" not in names
        assert all("==" in line for line in bundle.locked(names))
