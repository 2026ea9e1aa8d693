"""Which functions of the runtime API do packages use? Reads their wheels and writes runtime_imports.toml beside this file.

`python -m tests.conformance.runtime_imports [PACKAGE==VERSION ...]` downloads one wheel after the other, looks into its ELF
files, and deletes it. Without arguments all of PACKAGES. A function counts when an undefined symbol carries the version of a
libcudart.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).with_suffix(".toml")
#: JAX's plugins are not among them: they hold the names of all functions and look one up when it is called. Triton's
#: launcher uses the driver API only.
PACKAGES = tuple(f"torch=={v}" for v in ("2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.14.1", "2.15.0"))
_RUNTIME = re.compile(r"libcudart\.so\.(\d+)")
_DYNAMIC_SYMBOLS, _VERSION_OF_SYMBOL, _VERSION_NEEDED = 11, 0x6FFFFFFF, 0x6FFFFFFE


class ElfFile:
    """The dynamic symbols of a little-endian 64-bit ELF file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        header = self._file.read(64)
        if header[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path.name} is no 64-bit ELF file")
        table, size, count = (*struct.unpack_from("<Q", header, 40), *struct.unpack_from("<HH", header, 58))
        self._sections = [
            struct.unpack("<IIQQQQIIQQ", self._read(table + n * size, 64)) for n in range(count)
        ]

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)

    def _section(self, kind: int) -> tuple[bytes, bytes]:
        """Content of the first section of a kind, and of the string table that it links to."""
        for section in self._sections:
            if section[1] == kind:
                strings = self._sections[section[6]]
                return self._read(section[4], section[5]), self._read(strings[4], strings[5])
        return b"", b""

    def _versions(self) -> dict[int, str]:
        content, strings = self._section(_VERSION_NEEDED)
        found: dict[int, str] = {}
        at = 0
        while content:
            _, count, _, first, following = struct.unpack_from("<HHIII", content, at)
            entry = at + first
            for _ in range(count):
                _, _, index, name, step = struct.unpack_from("<IHHII", content, entry)
                found[index] = _text(strings, name)
                entry += step
            if not following:
                break
            at += following
        return found

    def imports(self) -> Iterator[tuple[str, str]]:
        """Undefined symbols with their versions."""
        symbols, strings = self._section(_DYNAMIC_SYMBOLS)
        indices, _ = self._section(_VERSION_OF_SYMBOL)
        versions = self._versions()
        for number in range(1, len(symbols) // 24):
            name, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", symbols, number * 24)
            if section == 0 and 2 * number + 2 <= len(indices):
                (index,) = struct.unpack_from("<H", indices, number * 2)
                yield _text(strings, name), versions.get(index & 0x7FFF, "")


def _text(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(b"\0", offset)].decode()


def functions_of(path: Path) -> set[tuple[int, str]]:
    """(major version, function) of one library."""
    found = set()
    for name, version in ElfFile(path).imports():
        if match := _RUNTIME.fullmatch(version):
            found.add((int(match[1]), name))
    return found


def read_wheel(wheel: Path, folder: Path) -> set[tuple[int, str]]:
    """(major version, function) of all libraries in a wheel."""
    found: set[tuple[int, str]] = set()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if ".so" in Path(member).name and not member.endswith((".py", ".pyi")):
                path = Path(archive.extract(member, folder))
                try:
                    found |= functions_of(path)
                except ValueError as error:
                    print(error, file=sys.stderr)
                path.unlink()
    return found


def look_into(package: str) -> tuple[str, set[tuple[int, str]]]:
    """Downloads one wheel; its name with version, and what it uses."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", temporary, package], check=True)
        (wheel,) = folder.glob("*.whl")
        name, version = wheel.name.split("-")[:2]
        return f"{name} {version}", read_wheel(wheel, folder / "content")


def load() -> dict[int, dict[str, list[str]]]:
    """The table: major version → function → packages that use it."""
    return {int(major): users for major, users in tomllib.loads(TABLE.read_text()).items()}


def save(table: dict[int, dict[str, set[str]]]) -> None:
    """Writes the table."""
    lines = [
        "# Written by `python -m tests.conformance.runtime_imports`: functions of libcudart, and who uses them."
    ]
    for major, users in sorted(table.items()):
        lines += ["", f"[{major}]"]
        lines += [
            f"{name} = [{', '.join(f'{user!r}' for user in sorted(users[name]))}]".replace("'", '"')
            for name in sorted(users)
        ]
    TABLE.write_text("\n".join(lines) + "\n")


def main() -> None:
    table: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    if len(sys.argv) > 1 and TABLE.exists():
        for major, users in load().items():
            for function, packages in users.items():
                table[major][function] |= set(packages)
    for package in sys.argv[1:] or PACKAGES:
        name, functions = look_into(package)
        print(f"{name}: {len(functions)} functions", flush=True)
        for major, function in functions:
            table[major][function].add(name)
        save(table)


if __name__ == "__main__":
    main()
