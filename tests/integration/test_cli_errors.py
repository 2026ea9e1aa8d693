"""What the services say when they cannot start: one sentence that names the value, and nothing changed."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from gpupool.node.agent_settings import MOST_HEARTBEAT
from gpupool.pool.model.timers import Timers

from tests.support import forked_cli

ROOT = Path(__file__).resolve().parents[2]


def gpupool(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPUPOOL_")}
    environment |= {"GPUPOOL_HOME": str(home), "PYTHONPATH": str(ROOT / "server"), **more}
    return forked_cli.gpupool(*arguments, environment=environment, seconds=30)


def one_sentence(done: subprocess.CompletedProcess[str], code: int, *says: str) -> None:
    assert done.returncode == code, done.stderr
    for text in says:
        assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_socket_in_a_directory_of_others_is_refused_and_the_directory_stays_as_it_is(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    done = gpupool(tmp_path / "home", "pool", "serve", "--socket", str(shared / "x.sock"))
    one_sentence(done, 1, f"The directory {shared} is open to others (mode 1777)")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("command", [("pool", "serve"), ("token", "list")])
def test_a_home_that_is_open_to_others_is_refused_and_stays_as_it_is(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    one_sentence(gpupool(home, *command), 1, f"The directory {home} is open to others (mode 0755)")
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


def test_a_token_in_a_new_ledger_is_made_and_that_it_is_new_is_said(tmp_path: Path) -> None:
    create = ("token", "create", "--user", "ann")
    first, second = gpupool(tmp_path / "home", *create), gpupool(tmp_path / "home", *create)
    assert (first.returncode, second.returncode) == (0, 0)
    ledger = str(tmp_path / "home" / "pool.sqlite")
    assert (ledger in first.stderr, ledger in second.stderr) == (True, False)
    # Alone on standard output, where it is written to a file.
    assert len(first.stdout.split()) == 1


def test_tokens_that_are_looked_for_make_no_ledger_and_a_pool_that_is_not_asked_is_named(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    for command in (("token", "list"), ("token", "revoke", "3f2a9c0b1d7e")):
        done = gpupool(home, *command, GPUPOOL_ENDPOINT="gpu-pool.example.org:7460")
        assert (done.returncode, done.stdout) == (1, "")
        assert "$GPUPOOL_ENDPOINT does not count here" in done.stderr
        assert not (home / "pool.sqlite").exists()
        assert gpupool(home, *command, "--token-file", "/nonexistent").returncode == 2
    assert gpupool(home, "token", "create", "--user", "ann").returncode == 0
    assert gpupool(home, "token", "list").returncode == 0


def test_run_asks_for_no_share_when_it_has_nowhere_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = f"unix:{tmp_path}/none.sock"
    done = gpupool(tmp_path / "file", "run", "-p", "0.2", "--pool", nowhere, "--", "true")
    # Had it asked, it would have said that no pool answers.
    one_sentence(done, 1, str(tmp_path / "file" / "run"))


@pytest.mark.parametrize("number", ["9", "64"])
def test_more_gpus_than_the_pool_grants_to_one_request_are_wrong_arguments(
    tmp_path: Path, number: str
) -> None:
    nowhere = f"unix:{tmp_path}/none.sock"
    done = gpupool(tmp_path, "lease", "request", "-p", "0.2", "-n", number, "--pool", nowhere)
    assert done.returncode == 2
    assert "from 1 to 8" in done.stderr and f"'{number}'" in done.stderr


@pytest.mark.parametrize("option", ["--metrics", "--listen"])
@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:" + "9" * 5000, "127.0.0.1:x", "nonsense"])
def test_an_address_that_cannot_be_is_named(tmp_path: Path, option: str, address: str) -> None:
    one_sentence(gpupool(tmp_path, "pool", "serve", option, address), 2, address, "is not host:port")


@pytest.mark.parametrize("drain", ["0s", "9s", "1h"])
def test_a_drain_that_no_agent_would_wait_for_is_refused(tmp_path: Path, drain: str) -> None:
    done = gpupool(tmp_path, "pool", "serve", "--drain", drain)
    assert done.returncode == 2
    assert "--drain" in done.stderr and "is not between 0 and 8s" in done.stderr


@pytest.mark.parametrize(
    "command", [("pool", "serve"), ("node", "start", "--driver", "software"), ("token", "list")]
)
@pytest.mark.parametrize("below", ["file", "file/home", "taken"])
def test_a_home_that_cannot_be_used_is_named(tmp_path: Path, command: tuple[str, ...], below: str) -> None:
    (tmp_path / "file").touch()
    for name in ("pool.lock", "pool.sqlite", "run"):
        # A directory where a file must be, and the other way round.
        (tmp_path / "taken").mkdir(mode=0o700, exist_ok=True)
        (tmp_path / "taken" / name).touch() if name == "run" else (tmp_path / "taken" / name).mkdir()
    one_sentence(gpupool(tmp_path / below, *command), 1, str(tmp_path / below))


@pytest.mark.parametrize(
    ("arguments", "option"),
    [((), "--listen-host"), (("--listen-host", "0.0.0.0"), "--advertise-host")],
)
def test_a_node_of_a_pool_elsewhere_does_not_send_kernels_to_themselves(
    tmp_path: Path, arguments: tuple[str, ...], option: str
) -> None:
    done = gpupool(tmp_path, "node", "start", "--pool", "192.0.2.1:7460", *arguments)
    assert done.returncode == 2
    assert "192.0.2.1" in done.stderr
    assert option in done.stderr


def test_an_address_that_kernels_are_told_is_one_that_workers_listen_on(tmp_path: Path) -> None:
    done = gpupool(tmp_path, "node", "start", "--advertise-host", "192.0.2.7")
    assert done.returncode == 2
    assert "192.0.2.7" in done.stderr
    assert "--listen-host" in done.stderr
    (tmp_path / "file").touch()
    tunnel = ("--advertise-host", "192.0.2.7", "--listen-host", "127.0.0.1")
    assert gpupool(tmp_path / "file", "node", "start", *tunnel).returncode == 1, "it went on"


@pytest.mark.parametrize(
    ("option", "host"),
    [
        ("--advertise-host", "http://gpu1"),
        ("--advertise-host", "gpu-m\u00fcller"),
        ("--advertise-host", "gpu1:40001"),
        ("--listen-host", "gpu 1"),
    ],
)
def test_a_host_that_no_kernel_can_dial_is_named(tmp_path: Path, option: str, host: str) -> None:
    # Without the check it would end there.
    (tmp_path / "file").touch()
    others = ("--listen-host", "127.0.0.1") if option == "--advertise-host" else ()
    done = gpupool(tmp_path / "file", "node", "start", option, host, *others)
    assert done.returncode == 2
    words = " ".join(done.stderr.replace("\u2502", " ").split())
    assert f"{option}: {host!r} is no host that kernels can dial" in words


def test_heartbeats_that_would_come_too_late_are_refused(tmp_path: Path) -> None:
    assert Timers().suspect >= 2 * MOST_HEARTBEAT
    (tmp_path / "file").touch()
    done = gpupool(tmp_path / "file", "node", "start", "--heartbeat-seconds", "8")
    assert done.returncode == 2
    assert "--heartbeat-seconds 8 is more than 7.5" in done.stderr
    longest = ("--heartbeat-seconds", "7.5")
    assert gpupool(tmp_path / "file", "node", "start", *longest).returncode == 1, "it went on"


def test_a_loopback_address_that_was_asked_for_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    loopback = ("--listen-host", "127.0.0.1")
    done = gpupool(tmp_path / "file", "node", "start", "--pool", "192.0.2.1:7460", *loopback)
    assert "warning: the pool is on another machine (192.0.2.1)" in done.stderr
    assert done.returncode == 1, "it went on, to a home that cannot be used"


@pytest.mark.parametrize("arguments", [("--help",), ("version",), ("kernel-packs", "list", "--json")])
def test_output_that_finds_no_room_is_a_sentence(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    environment = os.environ | {"GPUPOOL_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "server")}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from gpupool.cli.entry import main; main()", *arguments],
            env=environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    one_sentence(done, 1, "gpupool: ", "No space left on device")


def test_what_a_terminal_cannot_show_is_written_out(tmp_path: Path) -> None:
    environment = os.environ | {"GPUPOOL_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "server")}
    code = "import gpupool.cli.entry as entry; entry._run = lambda: print('Starting \u2026'); entry.main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PYTHONIOENCODING": "iso-8859-1"}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Starting \\u2026\n", b"")


def test_without_a_standard_output_a_command_does_its_work(tmp_path: Path) -> None:
    environment = os.environ | {"GPUPOOL_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "server")}
    command = f"{shlex.quote(sys.executable)} -c 'from gpupool.cli.entry import main; main()' version >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_address_without_a_port_is_said_by_a_node(tmp_path: Path) -> None:
    one_sentence(
        gpupool(tmp_path, "node", "start", GPUPOOL_ENDPOINT="pool.example.org"), 1, "pool.example.org"
    )


@pytest.mark.parametrize("command", [("pool", "backup"), ("lab", "--root-dir")])
def test_a_path_that_cannot_be_looked_at_is_a_sentence(tmp_path: Path, command: tuple[str, ...]) -> None:
    name = "x" * 300
    one_sentence(gpupool(tmp_path, *command, f"/tmp/{name}"), 1, "File name too long")


def test_a_reader_that_has_enough_is_no_error_that_is_told(tmp_path: Path) -> None:
    environment = os.environ | {"GPUPOOL_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "server")}
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", "from gpupool.cli.entry import main; main()", "version"],
        env=environment, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(write)
    assert done.stderr == ""
