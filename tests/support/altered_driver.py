"""The software GPU as another driver: an older one, or one that says something else of its devices."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from benchmarks.worker_process import software_driver


def altered_driver(folder: Path, source: str = "", without: Iterable[str] = ()) -> Path:
    """A driver in ``folder``.

    Args:
        source: C functions that take the place of the driver's; ``real(name)`` is the driver's own.
        without: names that the driver does not export.
    """
    original = software_driver()
    # Names of the same length, so that nothing else moves: whoever looks the first one up does not find it.
    names = {original.name: "libinside.so", **{name: name[:-1] + "~" for name in without}}
    content = original.read_bytes()
    for name, other in names.items():
        assert f"{name}\0".encode() in content
        content = content.replace(f"{name}\0".encode(), f"{other}\0".encode())
    copy = folder / "libinside.so"
    copy.write_bytes(content)
    for neighbour in original.parent.iterdir():
        if neighbour.name != original.name:
            (folder / neighbour.name).symlink_to(neighbour)
    made = folder / "libcuda.so.1"
    begin = f"""
    #include <dlfcn.h>
    static inline void *real(const char *name) {{ return dlsym(dlopen("{copy}", RTLD_NOW), name); }}
    """
    linked = ["-Wl,--no-as-needed", f"-Wl,-rpath,{folder}", copy]
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", made, "-x", "none", *linked]
    subprocess.run(command, input=begin + source, text=True, check=True)
    return made
