"""What an embedded pool says and is told, without processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.embedded import examples, messages
from gpupool.embedded.inventory import sentence
from gpupool.embedded.messages import BadMessageError, Gpu, Told
from gpupool.embedded.options import EmbeddedOptions


def test_software_gpus_are_called_so_and_counted() -> None:
    said = sentence([Gpu("Software GPU (gpupool)", True, 8192)] * 2)
    assert said.startswith("It lends 2 software GPUs (8 GiB each): they run CUDA programs on the CPU")


def test_real_gpus_are_named() -> None:
    said = sentence([Gpu("NVIDIA H100", False, 81920), Gpu("NVIDIA H100", False, 81920)])
    assert said == "It lends 2 GPUs: 2 × NVIDIA H100, 80 GiB."


def test_gpus_that_come_later_are_told_by_where_they_come_from() -> None:
    assert sentence([], ["slurm", "lab"]) == "It borrows GPUs from slurm and lab while somebody needs them."


def test_nothing_is_said_as_nothing() -> None:
    assert sentence([]) == "It lends no GPU."


def test_a_message_comes_back_as_it_was() -> None:
    told = Told(messages.READY, "x", "unix:/p", (Gpu("a", True, 1),), ("lab",), {"the pool": 7}, 2)
    line = told.line()
    assert line.endswith(b"\n")
    assert Told.parse(line) == told


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"[]", b"null", b"\xff", b'{"state": 1}', b'{"gpus": [1]}', b"9" * 5000]
)
def test_other_bytes_are_no_message(line: bytes) -> None:
    with pytest.raises(BadMessageError):
        Told.parse(line)


def test_options_travel_to_the_keeper() -> None:
    options = EmbeddedOptions("software", 3, 1024, ("ann=0.5",), 9.0, restarts=False)
    assert EmbeddedOptions.from_json(options.to_json()) == options
    assert options.pool_words() == ["--quota", "ann=0.5", "--notice", "9.000s"]
    assert options.node_words()[:4] == ["--driver", "software", "--software-gpus", "3"]


def test_the_node_listens_on_the_ports_that_are_asked_for() -> None:
    options = EmbeddedOptions(port_range="40000-40019")
    assert EmbeddedOptions.from_json(options.to_json()) == options
    words = options.node_words()
    assert words[words.index("--port-range") + 1] == "40000-40019"
    assert "--port-range" not in EmbeddedOptions().node_words()


def test_nodes_of_providers_end_with_the_pool_and_dial_an_encrypted_port() -> None:
    options = EmbeddedOptions(providers="/p.toml", listen="login1:7460")
    assert EmbeddedOptions.from_json(options.to_json()) == options
    assert options.pool_words() == [
        *("--providers", "/p.toml", "--return-nodes"),
        *("--listen", "login1:7460", "--tls-self-signed"),
    ]


def test_the_quickstart_is_copied_into_a_folder_without_notebooks_only(tmp_path: Path) -> None:
    assert examples.copy_quickstart(tmp_path)
    assert (tmp_path / "quickstart.ipynb").stat().st_mode & 0o200
    (tmp_path / "quickstart.ipynb").write_text("mine")
    assert not examples.copy_quickstart(tmp_path)
    assert (tmp_path / "quickstart.ipynb").read_text() == "mine"
    source = next(path for path in examples.notebooks() if path.name == examples.QUICKSTART)
    assert not examples.copy(source, tmp_path)
    assert examples.copy(source, tmp_path, over=True)
    assert (tmp_path / "quickstart.ipynb").read_bytes() == source.read_bytes()


def test_hidden_notebooks_are_no_notebooks(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.ipynb").write_text("")
    assert not examples.has_notebook(tmp_path)
