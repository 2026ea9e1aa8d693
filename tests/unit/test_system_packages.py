"""`.ci/system-packages` on machines that lack something: a PATH of fake tools stands for each machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).resolve().parents[2] / ".ci" / "system-packages"
FOR_BUILDING: Final = {"g++", "cmake", "make", "python3", "libzstd-dev", "liblz4-dev", "libssl-dev"}
FOR_TESTS: Final = {"chromium", "strace", "openssl", "doctest-dev", "fonts-liberation"}
#: What the script itself runs.
ORDINARY: Final = ("bash", "sed", "grep")
SILENT: Final = "true"


class Machine:
    """The programs of a machine, each with what it prints or does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.installed = folder / "installed"
        self.programs: dict[str, str] = {
            **dict.fromkeys(("c++", "cmake", "make", "python3", "apt-cache", "apt-get"), SILENT),
            "id": "echo 1000",
            "node": "echo v20.19.2",
        }

    def with_tests(self) -> Machine:
        self.programs |= dict.fromkeys(("chromium", "strace", "openssl"), SILENT)
        self.programs["fc-list"] = "echo /usr/share/fonts/LiberationMono-Bold.ttf"
        return self

    def with_candidate(self, version: str) -> Machine:
        self.programs["apt-cache"] = f"printf 'nodejs:\\n  Installed: (none)\\n  Candidate: {version}\\n'"
        return self

    def of_root(self) -> Machine:
        self.programs["id"] = "echo 0"
        self.programs["apt-get"] = f'echo "$@" >> {self.installed}'
        return self

    def run(self, *parts: str) -> subprocess.CompletedProcess[str]:
        for name in ORDINARY:
            found = shutil.which(name)
            assert found is not None
            (self.folder / name).symlink_to(found)
        for name, body in self.programs.items():
            program = self.folder / name
            program.write_text(f"#!{self.folder}/bash\n{body}\n")
            program.chmod(0o755)
        return subprocess.run(
            ["bash", SCRIPT, *parts],
            env={"PATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def demanded(ended: subprocess.CompletedProcess[str]) -> set[str]:
    """The packages of the line for an administrator."""
    lines = [line for line in ended.stderr.splitlines() if "apt-get install" in line]
    return {word for line in lines for word in line.split()[3:] if not word.startswith("-")}


def test_a_machine_with_everything(machine: Machine) -> None:
    ended = machine.with_tests().run("build", "tests")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_building_demands_nothing_that_only_tests_need(machine: Machine) -> None:
    assert machine.run("build").returncode == 0


def test_tests_demand_their_own(machine: Machine) -> None:
    machine.programs["c++"] = "false"  # finds no header
    ended = machine.run("build", "tests")
    assert ended.returncode == 1
    assert demanded(ended) == FOR_TESTS | {name for name in FOR_BUILDING if name.startswith("lib")}


def test_a_bare_machine(machine: Machine) -> None:
    machine.programs = {"id": "echo 1000"}
    ended = machine.with_candidate("20.19.2+dfsg-1").run("build")
    assert ended.returncode == 1
    assert demanded(ended) == FOR_BUILDING | {"python3-venv", "nodejs"}


@pytest.mark.parametrize("node", ["false", "echo v18.20.4"])
class TestNodeIsMissingOrOld:
    def test_the_package_index_has_a_newer_one(self, machine: Machine, node: str) -> None:
        machine.programs["node"] = node
        ended = machine.with_candidate("1:20.19.2+dfsg-1").run("build")
        assert ended.returncode == 1
        assert demanded(ended) == {"nodejs"}

    @pytest.mark.parametrize("candidate", ["18.20.4+dfsg-1~deb12u1", "(none)"])
    def test_it_has_none(self, machine: Machine, node: str, candidate: str) -> None:
        machine.programs["node"] = node
        ended = machine.with_candidate(candidate).run("build")
        assert ended.returncode == 1
        assert demanded(ended) == set()
        assert "nodejs.org" in ended.stderr
        assert "deb.nodesource.com" in ended.stderr

    def test_root_gets_the_rest(self, machine: Machine, node: str) -> None:
        machine.programs["node"] = node
        del machine.programs["cmake"]
        ended = machine.with_candidate("18.20.4+dfsg-1~deb12u1").of_root().run("build")
        assert ended.returncode == 1
        assert "nodejs.org" in ended.stderr
        assert machine.installed.read_text().split()[-1] == "cmake"


def test_root_installs(machine: Machine) -> None:
    del machine.programs["cmake"]
    ended = machine.of_root().run("build")
    assert ended.returncode == 0
    update, install = machine.installed.read_text().splitlines()
    assert update.startswith("update")
    assert install.split()[-1] == "cmake"
