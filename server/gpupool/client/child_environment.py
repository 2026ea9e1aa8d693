"""What a new process is told so that it finds our libraries in place of NVIDIA's.

:func:`environment` is for a program with a share of a pooled GPU, :func:`software_gpu_environment` for one that uses
the software GPU by itself, without a pool. Only the standard library is needed here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpupool.client.cpu_math import blas_variables
from gpupool.client.native import native_directory, native_file
from gpupool.client.session_file import (
    PROCESS_VARIABLE,
    SESSION_FILE_VARIABLE,
    SessionFile,
    SessionFileError,
)

#: Loaded in this order: numba asks for ``libcuda.so`` first, everybody else for ``libcuda.so.1``.
CLIENT_LIBRARIES: Final = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")
#: Libraries under nvJitLink's name that link nothing: without its version symbol cuda-core links through
#: the driver, so numba hands over PTX instead of machine code for a real GPU.
COMPAT_LIBRARIES: Final = ("libnvJitLink.so.13", "libnvJitLink.so.12")
#: For programs that link NVRTC and ask it for machine code: it hands out PTX instead.
NVRTC_LIBRARY: Final = "libgpupool-nvrtc-ptx.so"
#: Folders of our libraries under the names of NVIDIA's that programs link beside the driver: the runtime API and the
#: math libraries.
LINKED_LIBRARIES: Final = ("cudart", "libraries")
#: The folder of :data:`COMPAT_LIBRARIES` and :data:`NVRTC_LIBRARY`.
COMPAT: Final = "compat"

#: Stands in for NVIDIA's assembler on a software GPU: it hands on the PTX that it is given.
ASSEMBLER: Final = Path(__file__).with_name("assembler") / "ptxas"

#: What Python programs find beside their own modules: plug-ins of frameworks.
ON_PYTHON_PATH: Final = Path(__file__).with_name("on_python_path")
#: XLA would measure tens of kernels of its own for each product, for minutes on a software GPU, and take one that is slower than
#: the math library.
XLA_FLAGS: Final = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"

#: Chooses among the machine's own cards. A program with a share sees none of them, and PyTorch would count the share's
#: devices by it.
CHOICE_OF_CARDS: Final = "CUDA_VISIBLE_DEVICES"

#: Says to a process whose share it has: that of the kernel, or of the program with a keeper, that it is. A command that
#: ``gpupool run`` gives a share of its own would take itself for that kernel's child, and ask for another one.
OF_ANOTHER_SHARE: Final = (
    PROCESS_VARIABLE,
    "GPUPOOL_SERVER_URL",
    "GPUPOOL_SERVER_CERTIFICATE",
    "GPUPOOL_KERNEL_ID",
    "GPUPOOL_CAPABILITY_FILE",
    "GPUPOOL_PROBLEM",
)

#: JAX asks all libraries for their versions, and computes on the CPU if one does not answer. Most are ours. CUPTI from 13.2
#: on answers only if it finds NVIDIA's own driver.
JAX_UNCHECKED: Final = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"
#: How the warning begins that cuda-core gives when it finds our nvJitLink.
LINKER_WARNING: Final = "libnvJitLink.so* is too old"


def environment(
    native_dir: Path | None,
    session_file: Path,
    base: Mapping[str, str] | None = None,
    *,
    software: bool | None = None,
    preload: bool = False,
) -> dict[str, str]:
    """The variables that make a new process use the client runtime.

    :data:`CHOICE_OF_CARDS` and :data:`OF_ANOTHER_SHARE` are not to be among its others.

    Args:
        native_dir: where the native libraries are; None: those of this installation.
        session_file: how the process learns of its share.
        base: the environment that they will be added to (default: this process's); paths in
            it are kept, behind ours.
        software: whether the device is a software GPU; None: as the session file says.
        preload: also preload our runtime API and math libraries, and for a software GPU the libraries that make numba
            and NVRTC hand over PTX. For programs started by ``gpupool run``; kernels do it by
            :func:`gpupool.client.runtime.load_runtime_api` and :func:`gpupool.client.runtime.load`.

    Raises:
        RuntimeMissingError: the native libraries are not installed.
    """
    before = os.environ if base is None else base
    native = native_dir or native_directory()
    client = native / "client" if native_dir else native_file("client", CLIENT_LIBRARIES[0]).parent
    if software is None:
        try:
            software = SessionFile(session_file).read().software
        except SessionFileError:
            software = False
    variables = {
        SESSION_FILE_VARIABLE: str(session_file),
        "LD_LIBRARY_PATH": joined(
            [str(client), *_linked_folders(native, compat=preload and software)],
            before.get("LD_LIBRARY_PATH", ""),
        ),
        "TRITON_LIBCUDA_PATH": str(client),
        "PYTHONPATH": joined([str(ON_PYTHON_PATH)], before.get("PYTHONPATH", "")),
        JAX_UNCHECKED: before.get(JAX_UNCHECKED, "1"),
    }
    if software:
        variables |= compiler_variables(before)
    if preload:
        variables |= _preloaded(native, before, software=software)
    return variables


def software_gpu_environment(native: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a new process that uses the software GPU in ``native`` by itself.

    ``base``: the environment that it is made from; its own library paths stay, behind ours. What belongs to a share
    of a pool (the process may be started from within one) is left out.
    """
    driver = native / "softgpu"
    ours = [str(driver), *_linked_folders(native, compat=True)]
    kept = {name: value for name, value in base.items() if name != SESSION_FILE_VARIABLE}
    behind = [item for item in kept.get("LD_LIBRARY_PATH", "").split(":") if item != str(native / "client")]
    return (
        kept
        | {
            "LD_LIBRARY_PATH": joined(ours, ":".join(behind)),
            "TRITON_LIBCUDA_PATH": str(driver),
            "PYTHONPATH": joined([str(ON_PYTHON_PATH)], kept.get("PYTHONPATH", "")),
            JAX_UNCHECKED: kept.get(JAX_UNCHECKED, "1"),
        }
        | compiler_variables(kept)
        | blas_variables()
        | _preloaded(native, kept, software=True)
    )


def uses_software_gpu_alone(native: Path, environment: Mapping[str, str]) -> bool:
    """Whether a process with this environment finds the software GPU in ``native`` where NVIDIA's driver would be.

    So it is under ``gpupool softgpu``, where no pool is needed; with a share of a pool the client runtime comes first.
    """
    folders = (Path(folder) for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder)
    first = next((folder for folder in folders if (folder / CLIENT_LIBRARIES[0]).exists()), None)
    return first is not None and first.resolve() == (native / "softgpu").resolve()


def compiler_variables(before: Mapping[str, str]) -> dict[str, str]:
    """What makes Triton, TensorFlow, JAX and CuPy hand over PTX, and numba keep a hint about real cards to itself.

    ``before``: the environment that they are added to. What it says to XLA and Pallas stays as it is.
    """
    assembler = str(ASSEMBLER)
    return {
        # TensorFlow and XLA look for ``ptxas`` there, and nowhere else once one is found.
        "PATH": joined([str(ASSEMBLER.parent)], before.get("PATH", os.defpath)),
        "TRITON_PTXAS_PATH": assembler,
        "TRITON_PTXAS_BLACKWELL_PATH": assembler,
        "CUPY_COMPILE_WITH_PTX": "1",
        "MODULAR_NVPTX_COMPILER_PATH": assembler,  # Mojo's
        "XLA_FLAGS": before.get("XLA_FLAGS", XLA_FLAGS),
        # Pallas makes kernels by Triton then. Mosaic, its other way, wants Hopper's tensor memory accelerator.
        "JAX_PALLAS_USE_MOSAIC_GPU": before.get("JAX_PALLAS_USE_MOSAIC_GPU", "false"),
        # A grid that is small for a card is not small for a few cores; the hint would fill the cell's output.
        "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0",
    }


def joined(ours: Sequence[str], before: str, separator: str = ":") -> str:
    """A list in a variable: ``ours`` first, then what was in it."""
    kept = [item for item in before.split(separator) if item and item not in ours]
    return separator.join([*ours, *kept])


def linked_libraries(native: Path) -> list[Path]:
    """The files of :data:`LINKED_LIBRARIES`, the newest CUDA first: a name without a version is found there."""
    return [
        path
        for folder in LINKED_LIBRARIES
        for path in sorted((native / folder).glob("lib*.so.*"), reverse=True)
    ]


def _linked_folders(native: Path, *, compat: bool) -> list[str]:
    """Where the loader finds our libraries beside the driver; all that is preloaded lies there, too."""
    return [str(native / folder) for folder in (*LINKED_LIBRARIES, *((COMPAT,) if compat else ()))]


def _preloaded(native: Path, before: Mapping[str, str], *, software: bool) -> dict[str, str]:
    libraries = linked_libraries(native)
    variables = {}
    if software:
        libraries += [native / COMPAT / name for name in (*COMPAT_LIBRARIES, NVRTC_LIBRARY)]
        # Python reads this as action:message:category; the message matches by its beginning.
        quiet = f"ignore:{LINKER_WARNING}:RuntimeWarning"
        variables["PYTHONWARNINGS"] = joined([quiet], before.get("PYTHONWARNINGS", ""), ",")
    # The loader splits the list at blanks, too: where the path has one, it looks for the bare name in its folders.
    bare = any(letter.isspace() for letter in str(native))
    present = [path.name if bare else str(path) for path in libraries if path.exists()]
    return variables | {"LD_PRELOAD": joined(present, before.get("LD_PRELOAD", ""))}
