"""The nvcc that stands in front of NVIDIA's for software GPUs: PTX where machine code alone is asked for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import gpupool.client
import pytest

FRONT = Path(gpupool.client.__file__).with_name("assembler") / "nvcc"

#: Writes its arguments, one a line, and PTX where it was told to.
NVIDIAS = """#!/bin/sh
for argument; do printf '%s\\n' "$argument"; done >arguments
while [ $# -gt 0 ]; do
    case $1 in -o) printf '.version 8.0' >"$2" ;; esac
    shift
done
exit ${NVCC_STATUS:-0}
"""


@pytest.fixture
def nvidias(tmp_path: Path) -> Path:
    folder = tmp_path / "NVIDIA's"
    folder.mkdir()
    (folder / "nvcc").write_text(NVIDIAS)
    (folder / "nvcc").chmod(0o755)
    return folder


def run(nvidias: Path, *arguments: str, **more: str) -> tuple[int, list[str], str]:
    # Ours first, twice, as in an environment that was made from another one of ours.
    path = os.pathsep.join([str(FRONT.parent), str(FRONT.parent), str(nvidias), "/usr/bin", "/bin"])
    done = subprocess.run(
        [FRONT, *arguments],
        cwd=nvidias.parent,
        env={"PATH": path, "CUDA_HOME": "/nonexistent"} | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    given = nvidias.parent / "arguments"
    return done.returncode, given.read_text().splitlines() if given.exists() else [], done.stderr


def test_a_cubin_is_ptx_with_a_zero_byte(nvidias: Path) -> None:
    code, given, _ = run(nvidias, "--cubin", "-arch", "sm_90", "-I", "a folder", "kernel.cu")
    assert (code, given) == (
        0,
        ["--ptx", "-arch", "sm_90", "-I", "a folder", "kernel.cu", "-o", "kernel.cubin"],
    )
    assert (nvidias.parent / "kernel.cubin").read_bytes() == b".version 8.0\0"
    code, given, _ = run(nvidias, "-cubin", "-o", "out put.bin", "/elsewhere/kernel.cu")
    assert (code, given) == (0, ["--ptx", "-o", "out put.bin", "/elsewhere/kernel.cu"])
    assert (nvidias.parent / "out put.bin").read_bytes().endswith(b"\0")


def test_code_for_one_architecture_is_ptx_for_it(nvidias: Path) -> None:
    for given, made in (
        (["-gencode", "arch=compute_90,code=sm_90"], ["-gencode", "arch=compute_90,code=compute_90"]),
        (["-gencode=arch=compute_90,code=sm_90"], ["-gencode=arch=compute_90,code=compute_90"]),
        (["--gpu-code=sm_90"], ["--gpu-code=compute_90"]),
        (["-code", "sm_90"], ["-code", "compute_90"]),
    ):
        assert run(nvidias, "-fatbin", *given, "k.cu") == (0, ["-fatbin", *made, "k.cu"], "")


def test_everything_else_is_nvidias(nvidias: Path) -> None:
    for arguments in (["--version"], ["-o", "program", "-arch=sm_90", "-DNAME=code=sm_1", "k.cu"], []):
        assert run(nvidias, *arguments) == (0, arguments, "")
    assert run(nvidias, "--cubin", "k.cu", NVCC_STATUS="3")[0] == 3


def test_without_nvidias_it_says_so(nvidias: Path) -> None:
    (nvidias / "nvcc").unlink()
    code, _, said = run(nvidias, "--cubin", "k.cu")
    assert code == 127
    assert "neither in PATH nor in CUDA_HOME" in said
