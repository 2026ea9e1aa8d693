"""Checks C++ with clang, from the compile commands of a build folder.

    check_native.py BUILD            guarded members are used with their mutex held (-Wthread-safety)
    check_native.py BUILD --tidy     clang-tidy's findings instead (.clang-tidy)
    check_native.py BUILD --only X   compile commands whose source has X in its path

Writes no files. Build first: generated sources that are not there are left out, and counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("", *(f"-{version}" for version in range(22, 13, -1)))
#: What GCC knows and clang does not, and what only a real compilation needs.
DROPPED = ("-Werror", "-Wno-tsan", "-fsanitize", "-fno-sanitize")


def is_test(file: str) -> bool:
    """Tests have mutexes of the C++ library, and use what clang 14 does not know yet."""
    return file.endswith("_test.cpp") or "/test/" in file or "/tests/" in file


def find(tool: str) -> str:
    """The tool by its name, or by the name of one version; ends the program when there is none."""
    for version in VERSIONS:
        if found := shutil.which(tool + version):
            return found
    sys.exit(f"{tool} is not installed: apt-get install clang clang-tidy")


def arguments(entry: dict[str, Any]) -> list[str]:
    """What clang needs of one compile command: without the compiler and without its output."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    first = next(n for n, word in enumerate(words) if word.startswith("-"))
    kept: list[str] = []
    skip = False
    for word in words[first:]:
        if skip or word == "-o":
            skip = not skip
        elif word not in ("-c", entry["file"]) and not word.startswith(DROPPED):
            kept.append(word)
    # Clang 14 knows _Float16 only where the processor computes with it. Nothing is run.
    return [*kept, "-mavx512fp16"]


def check_threads(entry: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Clang's analysis of locks, and nothing else that it might have to say."""
    command = [
        find("clang++"),
        *arguments(entry),
        "-Wno-everything",
        "-Wthread-safety",
        "-Werror=thread-safety",
        "-ferror-limit=0",
    ]
    command += ["-fsyntax-only", entry["file"]]
    return subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)


def check_tidy(entry: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """What .clang-tidy asks for."""
    command = [find("clang-tidy"), "--quiet", f"--config-file={ROOT / '.clang-tidy'}", entry["file"], "--"]
    command += [*arguments(entry), "-Wno-everything"]
    return subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)


def run(
    name: str,
    check: Callable[[dict[str, Any]], subprocess.CompletedProcess[str]],
    entries: list[dict[str, Any]],
) -> bool:
    """True if nothing was found. Headers are read many times: each finding is shown once."""
    shown: set[str] = set()
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in pool.map(check, entries):
            failed += done.returncode != 0
            text = done.stdout if check is check_tidy else done.stderr
            if done.returncode != 0 and text not in shown:
                shown.add(text)
                print(text.rstrip())
    print(f"{name}: {len(entries)} compile commands, {failed} with findings")
    return failed == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--tidy", action="store_true")
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    entries = [
        entry
        for entry in json.loads((chosen.build / "compile_commands.json").read_text())
        if entry["file"].endswith((".cpp", ".cxx")) and not is_test(entry["file"])
        if chosen.only in entry["file"]
    ]
    if chosen.tidy:  # nobody reads generated code, and its names come from CUDA's
        entries = [entry for entry in entries if "/generated/" not in entry["file"]]
    there = [entry for entry in entries if Path(entry["file"]).exists()]
    print(f"{len(there)} compile commands, {len(entries) - len(there)} of sources that are not generated yet")
    good = run("clang-tidy", check_tidy, there) if chosen.tidy else run("thread safety", check_threads, there)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
