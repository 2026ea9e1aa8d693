"""The folders of src/ are rooms: which one may include which, and how many files lie side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parent.parent.parent / "src"

#: Each room with the rooms that it includes. A line stands below all that it names, so there is no cycle.
ROOMS: dict[str, list[str]] = {
    "base": [],
    "wire/tls": [],
    "wire/transport": ["base", "wire/tls"],
    "wire": ["wire/transport"],
    "client/process": ["base", "wire"],
    "protocol": ["wire"],
    "shared_api": ["base", "protocol", "wire"],
    "client/lease": ["base", "client/process", "protocol", "shared_api"],
    "client/link": ["base", "client/lease", "client/process", "shared_api", "wire", "wire/transport"],
    "profile": [],
    "client/session": [
        "base",
        "client/lease",
        "client/link",
        "client/process",
        "profile",
        "shared_api",
        "wire",
    ],
    "client/call": [
        "base",
        "client/link",
        "client/process",
        "client/session",
        "protocol",
        "shared_api",
        "wire",
    ],
    "client/progress": [
        "base",
        "client/call",
        "client/link",
        "client/process",
        "client/session",
        "shared_api",
        "wire",
    ],
    "client/memory": [
        "base",
        "client/call",
        "client/lease",
        "client/link",
        "client/process",
        "client/progress",
        "client/session",
        "protocol",
        "shared_api",
        "wire",
    ],
    "image": [],
    "client/objects": [
        "base",
        "client/call",
        "client/memory",
        "client/process",
        "client/progress",
        "client/session",
        "image",
        "protocol",
        "shared_api",
        "wire",
    ],
    "client/api": [
        "base",
        "client/call",
        "client/lease",
        "client/memory",
        "client/objects",
        "client/process",
        "client/progress",
        "client/session",
        "shared_api",
        "wire",
    ],
    "client/news": ["client/lease", "client/link", "client/memory", "client/progress", "client/session"],
    "cudart": ["base"],
    "cudart/api": ["cudart"],
    "libraries/operations": [],
    "libraries/shared": ["libraries/operations"],
    "libraries/cublas": ["libraries/operations", "libraries/shared"],
    "libraries/cublaslt": ["libraries/cublas", "libraries/operations", "libraries/shared"],
    "libraries/cufft": ["libraries/operations", "libraries/shared"],
    "libraries/cufftw": ["libraries/shared"],
    "libraries/curand": ["libraries/operations", "libraries/shared"],
    "libraries/cusparse": ["libraries/operations", "libraries/shared"],
    "libraries/cusparselt": ["libraries/cusparse", "libraries/shared"],
    "libraries/cusolver": ["libraries/operations", "libraries/shared"],
    "libraries/nccl": ["libraries/operations", "libraries/shared"],
    "libraries/cudnn": ["libraries/operations", "libraries/shared"],
    "enforcer": ["base"],
    "softgpu/ptx": [],
    "softgpu/exec/program": ["base", "softgpu/ptx"],
    "softgpu/exec/checks": ["softgpu/exec/program", "softgpu/exec/run"],
    "softgpu/exec/run": ["base", "softgpu/exec/checks", "softgpu/exec/program"],
    "softgpu/usage": ["base"],
    "softgpu/packs": ["base", "image"],
    "softgpu/driver/described": ["softgpu/exec/program"],
    "softgpu/driver/base": ["base", "shared_api", "softgpu/driver/described"],
    "softgpu/driver/backing": ["base", "softgpu/driver/base"],
    "softgpu/driver/device": [
        "base",
        "softgpu/driver/backing",
        "softgpu/driver/base",
        "softgpu/driver/described",
        "softgpu/usage",
    ],
    "softgpu/driver/stream": ["base", "softgpu/driver/base", "softgpu/driver/device", "softgpu/exec/run"],
    "softgpu/driver/graph": [
        "base",
        "softgpu/driver/backing",
        "softgpu/driver/base",
        "softgpu/driver/device",
        "softgpu/driver/stream",
    ],
    "softgpu/driver/memory": [
        "base",
        "shared_api",
        "softgpu/driver/backing",
        "softgpu/driver/base",
        "softgpu/driver/device",
        "softgpu/driver/graph",
        "softgpu/driver/stream",
        "softgpu/exec/run",
    ],
    "softgpu/driver/program": [
        "base",
        "image",
        "softgpu/driver/base",
        "softgpu/driver/described",
        "softgpu/driver/device",
        "softgpu/driver/graph",
        "softgpu/driver/memory",
        "softgpu/driver/stream",
        "softgpu/exec/program",
        "softgpu/packs",
    ],
    "softgpu/driver/api": [
        "base",
        "shared_api",
        "softgpu/driver/backing",
        "softgpu/driver/base",
        "softgpu/driver/described",
        "softgpu/driver/device",
        "softgpu/driver/graph",
        "softgpu/driver/memory",
        "softgpu/driver/program",
        "softgpu/driver/stream",
    ],
    "softgpu/exec/handlers": ["softgpu/exec/program", "softgpu/exec/run"],
    "softgpu/libraries": ["libraries/operations", "softgpu/exec/handlers", "softgpu/exec/program"],
    "softgpu/libraries/attention": ["libraries/operations", "softgpu/libraries"],
    "softgpu/libraries/decompositions": ["libraries/operations", "softgpu/exec/program", "softgpu/libraries"],
    "softgpu/libraries/products": ["libraries/operations", "softgpu/libraries"],
    "softgpu/libraries/recurrent": ["libraries/operations", "softgpu/libraries"],
    "softgpu/libraries/sparse": ["libraries/operations", "softgpu/exec/program", "softgpu/libraries"],
    "softgpu/driver/software": [
        "base",
        "softgpu/driver/api",
        "softgpu/driver/backing",
        "softgpu/driver/base",
        "softgpu/driver/described",
        "softgpu/driver/device",
        "softgpu/driver/graph",
        "softgpu/driver/memory",
        "softgpu/driver/program",
        "softgpu/driver/stream",
        "softgpu/exec/program",
        "softgpu/exec/run",
        "softgpu/libraries",
    ],
    "nvml": ["base", "profile", "softgpu/driver/described", "softgpu/usage"],
    "softgpu/compat": ["base"],
    "softgpu/jit": ["base", "softgpu/exec/program", "softgpu/exec/run"],
    "softgpu/jit/emit": ["base", "softgpu/exec/program", "softgpu/exec/run", "softgpu/jit"],
    "softgpu/reference": ["base", "softgpu/ptx"],
    "softgpu/differential": ["softgpu/exec/program", "softgpu/jit/emit", "softgpu/ptx", "softgpu/reference"],
    "softgpu/exec/lower": ["softgpu/exec/program", "softgpu/ptx"],
    "softgpu/null": [
        "image",
        "softgpu/driver/base",
        "softgpu/driver/described",
        "softgpu/driver/program",
        "softgpu/driver/stream",
        "softgpu/exec/program",
        "softgpu/ptx",
    ],
    "tools": ["wire", "wire/transport"],
    "worker/lease": ["wire"],
    "worker/driver": ["worker/lease"],
    "worker/libraries/kernels": ["libraries/operations", "worker/driver"],
    "worker/libraries": ["libraries/operations", "worker/driver", "worker/libraries/kernels"],
    "worker/libraries/cudnn": [
        "libraries/operations",
        "worker/driver",
        "worker/libraries",
        "worker/libraries/kernels",
    ],
    "worker/residence": ["profile", "wire", "worker/driver", "worker/lease"],
    "worker/device_time": ["enforcer", "worker/driver", "worker/lease", "worker/residence"],
    "worker/objects": [
        "base",
        "image",
        "protocol",
        "shared_api",
        "wire",
        "wire/transport",
        "worker/driver",
        "worker/lease",
    ],
    "worker/image": ["base", "wire", "wire/transport", "worker/objects"],
    "worker/session": [
        "profile",
        "worker/device_time",
        "worker/driver",
        "worker/image",
        "worker/lease",
        "worker/libraries",
        "worker/objects",
        "worker/residence",
    ],
    "worker/conversation": [
        "profile",
        "wire",
        "wire/transport",
        "worker/device_time",
        "worker/driver",
        "worker/image",
        "worker/lease",
        "worker/objects",
        "worker/residence",
        "worker/session",
    ],
    "worker/moving": [
        "base",
        "image",
        "protocol",
        "wire",
        "wire/transport",
        "worker/conversation",
        "worker/device_time",
        "worker/image",
        "worker/lease",
        "worker/objects",
        "worker/session",
    ],
    "worker/handlers": [
        "image",
        "protocol",
        "shared_api",
        "worker/conversation",
        "worker/image",
        "worker/moving",
        "worker/objects",
    ],
    "worker/process": [
        "base",
        "profile",
        "wire",
        "wire/transport",
        "worker/conversation",
        "worker/device_time",
        "worker/image",
        "worker/lease",
        "worker/moving",
        "worker/session",
    ],
}
#: Checks look at the block that runs, and the block asks them: the one pair of rooms that include each other.
PAIR = {"softgpu/exec/checks", "softgpu/exec/run"}
#: Rooms of tests may include anything.
TEST_ROOMS = {"testing", "fuzz", "softgpu/driver/tests", "softgpu/exec/test", "worker/test_driver"}
#: Rooms below the calls: of what the protocol table makes they see only the part that is the wire's own.
BELOW_THE_CALLS = {"base", "wire", "wire/tls", "wire/transport", "tools"}
MOST_SIBLINGS = 40
#: Units (a header with its source file) that include each other.
MOST_IN_A_CIRCLE = 5


def is_test(path: Path) -> bool:
    return path.stem.endswith("_test") or path.stem.startswith("test_") or "_test_" in path.stem


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """C and C++ files with their room."""
    for path in sorted(root.rglob("*")):
        if path.suffix in {".h", ".c", ".cpp"} and "include" not in path.relative_to(root).parts:
            yield path.parent.relative_to(root).as_posix(), path


def includes(path: Path) -> Iterator[tuple[int, str]]:
    """Line and room of each of our own files that `path` includes."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r'#include "([^"]+)/[^/"]+"', line)
        if found:
            yield number, "wire" if found[1] == "generated/wire" else found[1]


def wrong_includes(root: Path) -> list[str]:
    wrong = []
    for room, path in sources(root):
        if room in TEST_ROOMS or is_test(path):
            continue
        for number, other in includes(path):
            if other == "generated" and room not in BELOW_THE_CALLS:
                continue
            if other != room and other not in ROOMS.get(room, ()):
                wrong.append(f"{path.relative_to(root)}:{number}: {room} includes {other}")
    return wrong


def test_every_folder_with_sources_is_a_room() -> None:
    assert {room for room, _ in sources(SOURCES)} - TEST_ROOMS == set(ROOMS) - {"protocol"} | (
        {"protocol"} if list((SOURCES / "protocol").glob("*.h")) else set()
    )


def test_rooms_include_what_lies_below_them() -> None:
    assert wrong_includes(SOURCES) == []


def test_the_table_has_no_cycle() -> None:
    below: set[str] = set()
    for room, used in ROOMS.items():
        upwards = set(used) - below - (PAIR if room in PAIR else set())
        assert not upwards, f"{room} is listed above {upwards}, which it includes"
        below.add(room)


def test_client_worker_and_driver_know_nothing_of_each_other() -> None:
    for room, used in ROOMS.items():
        parts = {"client", "worker", "softgpu", "cudart"} & {room.split("/")[0]}
        others = {"client", "worker", "softgpu", "cudart"} - parts
        assert not parts or not {other.split("/")[0] for other in used} & others, room


@pytest.mark.parametrize("room", sorted(set(ROOMS) | TEST_ROOMS))
def test_a_room_has_a_readme_and_few_files(room: str) -> None:
    files = [path for path in (SOURCES / room).iterdir() if path.is_file()]
    tests = {path for path in files if is_test(path)}
    if room not in TEST_ROOMS:
        assert len(set(files) - tests) <= MOST_SIBLINGS
    readme = SOURCES / room / "README.md"
    if room != "softgpu/driver/tests":
        assert 4 <= len(readme.read_text().splitlines()) <= 15 or room == "protocol"


def test_a_wrong_include_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "bad.cpp").write_text(
        '#include "wire/transport/stream.h"\n#include "client/call/call.h"\n#include "generated/messages.h"\n'
        '#include "generated/wire/kinds.h"\n'
    )
    assert wrong_includes(tmp_path) == [
        "wire/bad.cpp:2: wire includes client/call",
        "wire/bad.cpp:3: wire includes generated",
    ]


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Units that reach each other, by Tarjan's algorithm for strongly connected components; single ones left out."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(unit: str) -> None:
        index[unit] = lowest[unit] = len(index)
        stack.append(unit)
        for other in edges[unit]:
            if other not in index:
                visit(other)
                lowest[unit] = min(lowest[unit], lowest[other])
            elif other in stack:
                lowest[unit] = min(lowest[unit], index[other])
        if lowest[unit] == index[unit]:
            cut = stack.index(unit)
            if len(stack) - cut > 1:
                found.append(set(stack[cut:]))
            del stack[cut:]

    for unit in edges:
        if unit not in index:
            visit(unit)
    return found


def units(root: Path) -> dict[str, set[str]]:
    """A header with its source file is a unit; what each one includes."""
    files = {
        path: path.relative_to(root).with_suffix("").as_posix()
        for room, path in sources(root)
        if room not in TEST_ROOMS and not is_test(path)
    }
    edges: dict[str, set[str]] = {unit: set() for unit in files.values()}
    for path, unit in files.items():
        named = {name.rsplit(".", 1)[0] for name in re.findall(r'#include "([^"]+)"', path.read_text())}
        edges[unit] |= {name for name in named if name in edges and name != unit}
    return edges


def test_few_units_include_each_other_in_a_circle() -> None:
    assert [sorted(circle) for circle in circles(units(SOURCES)) if len(circle) > MOST_IN_A_CIRCLE] == []


def test_a_circle_is_noticed() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
