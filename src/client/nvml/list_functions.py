"""Writes the NVML functions that this library does not serve, each answering NVML_ERROR_NOT_SUPPORTED.

The names come from nvml.h and, when it is installed, from nvidia-ml-py, which may be newer than the header. What is
served is read from the sources themselves, so that the two can never disagree: a name in both would not link.

Usage: list_functions.py NVML_H OUTPUT_CPP SOURCE_CPP...
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

DECLARED = re.compile(
    r"^(?:DEPRECATED\([^)]*\)\s*)?nvmlReturn_t\s+DECLDIR\s+(nvml[A-Za-z0-9_]+)\s*\(", re.MULTILINE
)
BOUND_BY_PYTHON = re.compile(r"_nvmlGetFunctionPointer\(\"(nvml[A-Za-z0-9_]+)\"\)")
SERVED = re.compile(r"^(?:nvmlReturn_t|const char\*) (nvml[A-Za-z0-9_]+)\(", re.MULTILINE)


def python_binding() -> str:
    """Source text of nvidia-ml-py's pynvml module, empty when it is not installed."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        return ""
    return Path(spec.origin).read_text(encoding="utf-8", errors="replace")


def main(arguments: list[str]) -> None:
    header, output, *sources = (Path(argument) for argument in arguments)
    declared = set(DECLARED.findall(header.read_text(encoding="utf-8", errors="replace")))
    if len(declared) < 100:
        sys.exit(f"{header} declares only {len(declared)} functions: is it nvml.h?")
    declared |= set(BOUND_BY_PYTHON.findall(python_binding()))
    served = {name for source in sources for name in SERVED.findall(source.read_text(encoding="utf-8"))}
    lines = ["// Written by list_functions.py.", 'extern "C" {']
    lines += [f"int {name}() {{ return 3; }}" for name in sorted(declared - served)]
    lines += ["}", ""]
    output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
