"""Writes the NVML functions that this library does not serve, each answering NVML_ERROR_NOT_SUPPORTED.

The names come from nvml.h and, when it is installed, from nvidia-ml-py, which may be newer than the header. What is
served is read from the sources themselves, so that the two can never disagree: a name in both would not link.

The coverage page says of each function whether it is served, and if not why (unsupported.toml).

Usage: list_functions.py NVML_H OUTPUT_CPP COVERAGE_MD SOURCE_CPP...
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
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


def reasons(names: list[str]) -> dict[str, str]:
    """Why each of these is not served; exits when one has no reason."""
    with Path(__file__).with_name("unsupported.toml").open("rb") as file:
        known = [(re.compile("|".join(r["names"])), r["why"]) for r in tomllib.load(file)["reason"]]
    found = {name: next((why for pattern, why in known if pattern.search(name)), "") for name in names}
    if missing := [name for name, why in found.items() if not why]:
        sys.exit(f"unsupported.toml gives no reason for {', '.join(missing)}")
    return found


def page(served: set[str], why: dict[str, str]) -> str:
    """Markdown: counts, then every export."""
    lines = [
        "# NVML coverage",
        "",
        f"{len(served) + len(why)} exports: {len(served)} served, {len(why)} not.",
    ]
    lines += ["", "| export | answer |", "|---|---|"]
    for name in sorted(served | why.keys()):
        answer = f"`NVML_ERROR_NOT_SUPPORTED`: {why[name]}" if name in why else "served"
        lines.append(f"| `{name}` | {answer} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    header, output, coverage, *sources = (Path(argument) for argument in arguments)
    declared = set(DECLARED.findall(header.read_text(encoding="utf-8", errors="replace")))
    if len(declared) < 100:
        sys.exit(f"{header} declares only {len(declared)} functions: is it nvml.h?")
    declared |= set(BOUND_BY_PYTHON.findall(python_binding()))
    served = {name for source in sources for name in SERVED.findall(source.read_text(encoding="utf-8"))}
    unsupported = sorted(declared - served)
    lines = ["// Written by list_functions.py.", 'extern "C" {']
    lines += [f"int {name}() {{ return 3; }}" for name in unsupported]
    lines += ["}", ""]
    output.write_text("\n".join(lines), encoding="utf-8")
    coverage.parent.mkdir(parents=True, exist_ok=True)
    coverage.write_text(page(served, reasons(unsupported)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
