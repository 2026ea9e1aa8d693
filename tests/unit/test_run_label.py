"""What others see of a command that runs with a share."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.cli.top.run_command import label_of


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("python train.py --key=SECRET", "python train.py"),
        ("/usr/bin/python3 -u train.py SECRET", "python3 train.py"),
        ("python -m torch.distributed.run --token SECRET", "python -m torch.distributed.run"),
        ("env API_KEY=SECRET python train.py", "python train.py"),
        ("/usr/bin/env API_KEY=SECRET python train.py", "python train.py"),
        ("API_KEY=SECRET python train.py", "python train.py"),
        ("env -u HOME API_KEY=SECRET", "env"),
        ("curl -H SECRET https://host/?key=SECRET", "curl"),
        ("python -c SECRET", "python"),
        ("./train.py", "train.py"),
        ("env", "env"),
    ],
)
def test_the_program_and_its_script_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, label: str
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    assert label_of(command.split()) == label


def test_a_program_in_an_argument_is_no_file() -> None:
    assert label_of(["python", "-c", "print(1)\n" * 1000]) == "python"
    assert label_of(["python", "-c", "a\0b"]) == "python"


def test_it_is_short_and_steers_no_terminal() -> None:
    assert label_of([f"/bin/{'x' * 100}"]) == "x" * 80
    assert label_of(["a\x1b[2J"]) == "a\\x1b[2J"
