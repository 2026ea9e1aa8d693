"""What cuda_runtime_api.h declares: exported names with their prototypes, and the error enumerators.

Preprocessed with `__CUDA_API_VERSION_INTERNAL`, the header declares every symbol that libcudart exports, with the forms
for the per-thread default stream (`_ptds`, `_ptsz`) and the older forms of a function under names of their own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "protocol"))

import cuda_header

_PROTOTYPE = re.compile(r"\bextern\s+((?:const\s+|struct\s+)?\w+\s*\**)\s*(cuda[A-Z]\w*)\s*\(([^;{}]*)\)\s*;")
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)")
_SUFFIX = re.compile(r"_pt[ds][sz]$")
# cuda_runtime_api.h leaves these to cuda_profiler_api.h, which the header wheels leave out.
_ELSEWHERE = {"cudaProfilerStart": (), "cudaProfilerStop": ()}


@dataclass(frozen=True)
class Function:
    """An exported function. `result` is `cudaError_t` for nearly all."""

    name: str
    result: str
    parameters: tuple[cuda_header.Parameter, ...]
    per_thread: str  # the suffix of its form for the per-thread default stream, or ""

    @property
    def declaration(self) -> str:
        """C parameters without parentheses, e.g. `cudaStream_t stream, unsigned int flags`."""
        return ", ".join(f"{p.type} {p.name}" for p in self.parameters)

    @property
    def stream_parameters(self) -> tuple[str, ...]:
        """Names of the parameters that are streams by value."""
        return tuple(p.name for p in self.parameters if p.type == "cudaStream_t")


@dataclass(frozen=True)
class RuntimeHeader:
    """A parsed cuda_runtime_api.h with the cuda.h beside it."""

    version: int  # CUDART_VERSION, 1000 * major + 10 * minor
    functions: dict[str, Function]  # by name, without the forms for the per-thread default stream
    errors: dict[str, int]  # enumerators of cudaError
    driver: dict[str, cuda_header.Prototype]  # exports of the driver, by name

    @property
    def major(self) -> int:
        return self.version // 1000


def _functions(text: str) -> dict[str, Function]:
    found = {name: (result, args) for result, name, args in _PROTOTYPE.findall(text)}
    functions = {}
    for name, (result, args) in found.items():
        if _SUFFIX.search(name):
            continue
        suffix = next((s for s in ("_ptds", "_ptsz") if name + s in found), "")
        functions[name] = Function(name, " ".join(result.split()), cuda_header.split_parameters(args), suffix)
    for name, parameters in _ELSEWHERE.items():
        functions.setdefault(name, Function(name, "cudaError_t", parameters, ""))
    return functions


def _driver(include_dir: Path, compiler: str) -> dict[str, cuda_header.Prototype]:
    """The driver's exports. Its typedefs, which `cuda_header.load` checks as well, are incomplete in 12.x."""
    found = cuda_header.prototypes(include_dir, compiler)
    profiler = include_dir / "cudaProfilerTypedefs.h"
    return found | cuda_header.profiler_functions(profiler.read_text())


def load(include_dir: Path, own_include: Path, compiler: str = "cc") -> RuntimeHeader:
    """Reads the headers in `include_dir`. Raises HeaderError, or CalledProcessError when the preprocessor fails."""
    path = include_dir / "cuda_runtime_api.h"
    run = subprocess.run(
        [
            *(compiler, "-E", "-P", "-x", "c", "-D__CUDA_API_VERSION_INTERNAL"),
            *(f"-I{own_include}", f"-I{include_dir}", str(path)),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    text = _ATTRIBUTE.sub("", run.stdout)
    functions = _functions(text)
    version = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", path.read_text())
    enumeration = re.search(r"\benum\s+cudaError\s*\{(.*?)\}", text, re.DOTALL)
    if version is None or enumeration is None or len(functions) < 200:
        raise cuda_header.HeaderError(f"{path} does not look like cuda_runtime_api.h")
    errors = {name: int(value) for name, value in re.findall(r"(cuda\w+)\s*=\s*(\d+)", enumeration[1])}
    return RuntimeHeader(int(version[1]), functions, errors, _driver(include_dir, compiler))
