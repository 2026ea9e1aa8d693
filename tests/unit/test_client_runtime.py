"""The client runtime from Python: guard, environment, counters; without any native library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from gpupool.client import child_environment, runtime
from gpupool.client.errors import DeviceCallFailedError, RuntimeMissingError
from gpupool.client.native import NATIVE_VARIABLE
from gpupool.client.on_python_path.jax_plugins import gpupool_device
from gpupool.client.session_file import SessionFile

#: Libraries that programs link, in the order in which they are loaded.
LINKED = ("libcudart.so.13", "libcudart.so.12", "libcublas.so.13", "libcublas.so.12")


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "native"
    for part, names in (
        ("client", child_environment.CLIENT_LIBRARIES),
        ("cudart", LINKED[:2]),
        ("libraries", LINKED[2:]),
        ("compat", (*child_environment.COMPAT_LIBRARIES, child_environment.NVRTC_LIBRARY)),
    ):
        (folder / part).mkdir(parents=True)
        for name in names:
            (folder / part / name).touch()
    monkeypatch.setenv(NATIVE_VARIABLE, str(folder))
    return folder


def maps(path: str) -> str:
    return f"7f0000000000-7f0000001000 r-xp 00000000 08:01 42    {path}\n7ffc0000-7ffc1000 rw-p 0 00:00 0 [stack]\n"


@pytest.mark.parametrize(
    "path", ["/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.580.95.05", "/a b/libcuda.so"]
)
def test_another_driver_in_the_process_is_noticed(native: Path, path: str) -> None:
    assert runtime.foreign_driver(maps(path)) == path


@pytest.mark.parametrize(
    "name", ["libcudart.so.13", "libcudadebugger.so.1", "mylibcuda.so.1", "libcuda.so.1.txt"]
)
def test_other_libraries_are_no_driver(native: Path, name: str) -> None:
    assert runtime.foreign_driver(maps(f"/usr/lib/{name}")) is None


def test_our_own_driver_is_not_foreign(native: Path) -> None:
    assert runtime.foreign_driver(maps(str(native / "client" / "libcuda.so.1"))) is None
    assert runtime.foreign_driver() is None


def test_without_native_libraries_the_error_says_where_they_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NATIVE_VARIABLE, str(tmp_path))
    with pytest.raises(RuntimeMissingError, match="make build"):
        runtime.load(software=True)
    with pytest.raises(RuntimeMissingError):
        child_environment.environment(None, tmp_path / "session", {})


def test_calls_before_loading_are_clear_errors_and_counters_are_zero() -> None:
    for call in (runtime.attach, runtime.drain, runtime.detach):
        with pytest.raises(DeviceCallFailedError, match="not loaded"):
            call()
    assert runtime.counters() == runtime.Counters()


def test_a_child_finds_our_libraries_first_and_keeps_its_own_paths(native: Path, tmp_path: Path) -> None:
    before = {"LD_LIBRARY_PATH": "/opt/lib:/usr/local/lib", "LD_PRELOAD": "/opt/mine.so"}
    made = child_environment.environment(None, tmp_path / "session", before, software=False)
    assert made["LD_LIBRARY_PATH"] == (
        f"{native}/client:{native}/cudart:{native}/libraries:/opt/lib:/usr/local/lib"
    )
    assert made["GPUPOOL_SESSION_FILE"] == str(tmp_path / "session")
    assert "LD_PRELOAD" not in made
    assert "CUPY_COMPILE_WITH_PTX" not in made
    assert "PATH" not in made
    again = child_environment.environment(None, tmp_path / "session", {**before, **made}, software=False)
    assert again["LD_LIBRARY_PATH"] == made["LD_LIBRARY_PATH"]


def test_a_child_finds_our_plug_ins_of_frameworks(native: Path, tmp_path: Path) -> None:
    made = child_environment.environment(
        None, tmp_path / "session", {"PYTHONPATH": "/opt/mine"}, software=False
    )
    assert made["PYTHONPATH"] == f"{child_environment.ON_PYTHON_PATH}:/opt/mine"
    assert (child_environment.ON_PYTHON_PATH / "jax_plugins" / "gpupool_device.py").is_file()
    # With CUPTI 13.2 JAX would fall back to the CPU.
    assert made["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] == "1"
    alone = child_environment.software_gpu_environment(native, made)
    for name in ("PYTHONPATH", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"):
        assert alone[name] == made[name]


def test_xla_measures_nothing_on_a_software_gpu_unless_its_user_wants_that() -> None:
    assert "autotune_level=0" in child_environment.compiler_variables({})["XLA_FLAGS"]
    mine = {"XLA_FLAGS": "--xla_gpu_autotune_level=4", "JAX_PALLAS_USE_MOSAIC_GPU": "true"}
    made = child_environment.compiler_variables(mine)
    assert {name: made[name] for name in mine} == mine


@pytest.mark.parametrize(
    ("state", "has"),
    [("attached", True), ("waiting", True), ("parked", True), ("none", False), ("closed", False)],
)
def test_jax_looks_for_a_gpu_where_there_is_a_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, has: bool
) -> None:
    monkeypatch.setenv("GPUPOOL_SESSION_FILE", str(tmp_path / "session"))
    assert not gpupool_device.has_gpu()
    (tmp_path / "session").write_text(f"version 1\nstate {state}\nsoftware 1\n")
    assert gpupool_device.has_gpu() is has
    monkeypatch.delenv("GPUPOOL_SESSION_FILE")
    assert gpupool_device.has_gpu()  # a software GPU of its own


def test_jax_does_not_make_machine_code_for_a_software_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = child_environment.compiler_variables({"PATH": str(tmp_path)})
    monkeypatch.setenv("PATH", made["PATH"])
    assert gpupool_device.takes_ptx()
    (tmp_path / "ptxas").touch(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not gpupool_device.takes_ptx()


def test_xla_records_what_our_graphs_can_hold_unless_its_user_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = gpupool_device.with_what_is_recorded
    assert recorded("") == "--xla_gpu_enable_command_buffer=-COLLECTIVES"
    assert recorded("--mine") == "--mine --xla_gpu_enable_command_buffer=-COLLECTIVES"
    assert recorded("--xla_gpu_enable_command_buffer= --mine") == "--xla_gpu_enable_command_buffer= --mine"
    # On several nodes nothing can be read back.
    (tmp_path / "session").write_text("version 1\nstate attached\ndevices 1,1\n")
    monkeypatch.setenv("GPUPOOL_SESSION_FILE", str(tmp_path / "session"))
    assert recorded("--mine") == "--mine --xla_gpu_enable_command_buffer="


def test_on_a_software_gpu_compilers_hand_over_ptx(native: Path, tmp_path: Path) -> None:
    SessionFile(tmp_path / "session").write("none", software=True)
    made = child_environment.environment(
        None, tmp_path / "session", {"LD_PRELOAD": "/opt/mine.so", "PATH": "/opt/bin"}, preload=True
    )
    assert made["CUPY_COMPILE_WITH_PTX"] == "1"
    assert os.access(made["TRITON_PTXAS_PATH"], os.X_OK)
    assert shutil.which("ptxas", path=made["PATH"]) == made["TRITON_PTXAS_PATH"]
    assert made["PATH"].endswith(":/opt/bin")
    assert made["LD_PRELOAD"] == ":".join(
        [
            *(f"{native}/cudart/{name}" for name in LINKED[:2]),
            *(f"{native}/libraries/{name}" for name in LINKED[2:]),
            *(
                f"{native}/compat/{name}"
                for name in (*child_environment.COMPAT_LIBRARIES, child_environment.NVRTC_LIBRARY)
            ),
            "/opt/mine.so",
        ]
    )
    warns = "import warnings; warnings.warn('libnvJitLink.so* is too old (<12.3). Therefore', RuntimeWarning)"
    quiet = subprocess.run(
        ["python3", "-c", warns],
        env={"PYTHONWARNINGS": made["PYTHONWARNINGS"]},
        capture_output=True,
        text=True,
    )
    assert quiet.stderr == ""


def test_what_is_preloaded_is_found_where_the_path_has_a_blank(native: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my notebooks" / "native"
    shutil.copytree(native, folder)
    for made in (
        child_environment.environment(folder, tmp_path / "session", {}, software=True, preload=True),
        child_environment.software_gpu_environment(folder, {}),
    ):
        told = subprocess.run(
            ["/bin/true"],
            env={name: made[name] for name in ("LD_PRELOAD", "LD_LIBRARY_PATH")},
            capture_output=True,
            text=True,
        ).stderr.splitlines()
        # Those of this test are empty; the loader opens each of them, and says so.
        assert len(told) == len(LINKED) + 3
        assert all("file too short" in line for line in told)


def test_the_assembler_stand_in_hands_ptx_through(tmp_path: Path) -> None:
    assembler = str(child_environment.ASSEMBLER)
    source, output = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(".version 9.0\n")
    subprocess.run(
        [assembler, "-lineinfo", "-v", "--gpu-name=sm_120a", str(source), "-o", str(output)], check=True
    )
    # The zero byte ends it for a driver that gets the bytes of the file in memory, as TensorFlow's does.
    assert output.read_bytes() == b".version 9.0\n\0"
    version = subprocess.run([assembler, "--version"], capture_output=True, text=True, check=True).stdout
    assert "release 13.0" in version
    for wrong in ([], [str(source)], [str(source), "-o"], [str(tmp_path / "none"), "-o", str(output)]):
        assert subprocess.run([assembler, *wrong], capture_output=True).returncode != 0


def test_counters_are_read_as_the_runtime_writes_them() -> None:
    text = {
        "calls": 7, "posts": 5, "asks": 2, "ask_seconds": 0.25, "bytes_to_device": 10, "bytes_from_device": 20,
        "asks_by_name": {"cuMemcpyDtoH_v2": [2, 0.25]}, "copies_to_host": [2, 0, 1, 0],
        "worker": {"device_seconds": 1.5, "kernels": 3, "memory_used": [1], "memory_peak": [2]},
        "state": "attached", "software": True, "failure": 700,
    }  # fmt: skip
    counters = runtime.parse_counters(json.dumps(text).encode())
    assert counters.asks_by_name == {"cuMemcpyDtoH_v2": (2, 0.25)}
    assert counters.copies_to_host == (2, 0, 1, 0)
    assert counters.failure == 700
    assert counters.worker == runtime.WorkerCounters(1.5, 3, (1,), (2,))
    assert runtime.parse_counters(json.dumps({**text, "worker": None}).encode()).worker is None
    with pytest.raises((ValueError, KeyError)):
        runtime.parse_counters(b"{}")
