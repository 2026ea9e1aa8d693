"""What the command line proposes for words that it does not know, and in which order its help lists what it knows."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

import pytest
from gpupool.cli.main import app
from gpupool.client.os_user import os_user
from typer.testing import CliRunner

from jupyter_gpupool.server.pool.identity import default_user


def said(*words: str, code: int = 2) -> str:
    done = CliRunner().invoke(app, list(words), prog_name="gpupool")
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("serve", "gpupool pool serve"),
        ("serv --listen 10.0.0.5:7460", "gpupool pool serve"),
        ("list-gpus", "gpupool gpu list"),
        ("nodes", "gpupool node list"),
        ("get nodes", "gpupool node list"),
        ("list sessions", "gpupool session list"),
        ("requst -p 0.2", "gpupool lease request"),
        ("drain gpu1", "gpupool node drain"),
        ("node strt", "gpupool node start"),
        ("lease drain gpu1", "gpupool node drain"),
        ("pool node", "gpupool node"),
        ("report histroy", "gpupool report history"),
        ("kernel-pack list", "gpupool kernel-packs list"),
    ],
)
def test_a_word_that_is_no_command_is_answered_by_the_command_that_is_like_it(words: str, meant: str) -> None:
    assert re.search(rf"no such command '[\w-]+'; did you mean '{meant}'\?", said(*words.split()))


def test_a_word_like_many_commands_names_them_and_one_like_none_names_none() -> None:
    assert said("list").count(" list'") == 6
    assert said("frobnicate").rstrip().endswith("no such command 'frobnicate'")
    assert "Try 'gpupool --help'" in said("frobnicate")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("node --software-gpus 2", "has no option --software-gpus; did you mean 'gpupool node start --software-gpus'"),
        ("pool --listen=0.0.0.0:1", "'gpupool pool' has no option --listen; did you mean 'gpupool pool serve --listen'"),
        ("lease request --partail 0.2", "--partial"),
        ("run -p 0,2 -- true", "did you mean 0.2?"),
        ("run -p 1.5 -- true", "0.75 with -n 2"),
        ("smi --pool localhost", "write host:port, such as localhost:7460"),
        ("smi --pool tls:pool.example.org", "such as tls:pool.example.org:7460"),
        ("smi --pool /run/pool.sock", "write unix:/run/pool.sock"),
        ("node start --driver nvidia --software-gpus 2", "--driver software"),
        ("node start --software-gpus 17", "'17' is no whole number from 1 to 16"),
        ("up --software-gpus 17", "'17' is no whole number from 1 to 16"),
        ("lab --software-gpus 0", "'0' is no whole number from 1 to 16"),
        ("lab --notebook not/here.ipynb", "there is no file /"),
        ("lab --root-dir docs --notebook ../README.md", "use --root-dir /"),
        ("up --memory-mib 511", "'511' is no whole number from 512 to"),
        ("softgpu -n 17 -- true", "'17' is no whole number from 0 to 16"),
    ],
)  # fmt: skip
def test_what_is_wrong_says_what_to_write(words: str, says: str) -> None:
    assert says in " ".join(said(*words.split()).split())


def test_a_pool_that_does_not_answer_says_how_to_start_or_name_one() -> None:
    output = said("gpu", "list", "--pool", "unix:/nonexistent/pool.sock", code=69)
    assert output.count("\n") == 1
    for text in ("unix:/nonexistent/pool.sock", "gpupool pool serve", "--pool", "GPUPOOL_ENDPOINT"):
        assert text in output


def test_help_has_headings_in_the_order_in_which_a_newcomer_reads() -> None:
    text = said("--help", code=0)
    headings = ["Use a GPU:", "Look:", "Run a pool:", "Administer:", "More:"]
    places = [text.index(f"\n{heading}\n") for heading in headings]
    assert places == sorted(places)
    assert (
        text.index("\n  run ") < text.index("\n  smi ") < text.index("\n  pool ") < text.index("\n  token ")
    )
    assert "..." not in text.partition("Use a GPU:")[2]


def test_a_group_without_a_verb_lists_its_verbs() -> None:
    text = said("node")
    for verb in ("start", "list", "drain", "logs", "netperf"):
        assert f"\n  {verb} " in text


@pytest.mark.parametrize("command", ["lease request -p 0.2", "explain -p 0.2"])
def test_a_user_id_without_a_name_may_ask_as_well(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in OpenShift's containers."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "JUPYTERHUB_USER"):
        monkeypatch.delenv(name, raising=False)
    said(*command.split(), "--pool", f"unix:{tmp_path}/none.sock", code=69)
    assert os_user() == default_user() == f"uid{os.getuid()}"
