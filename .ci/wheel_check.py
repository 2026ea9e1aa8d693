"""`make wheel-check`: the wheel, installed into a fresh environment with no Node, brings everything and is on by itself.

Needs `make wheel`, and a package index for what the wheel depends on.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Parts that people install; the rest of the extras is for builds and tests.
EXTRAS = "[jupyter,pool]"


def main() -> None:
    (wheel,) = (ROOT / "build" / "wheel").glob("jupyter_gpupool-*.whl")
    say(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory(prefix="gpw-") as temporary:
        check(wheel, Path(temporary))


def check(wheel: Path, folder: Path) -> None:
    """Everything after the build; raises SystemExit with a sentence."""
    environment = folder / "venv"
    venv.create(environment, with_pip=True)
    # Nothing but the environment: no Node, no compiler, no JupyterLab of the system.
    path = str(environment / "bin")
    variables = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "JUPYTER_PLATFORM_DIRS": "1"}
    for name in (
        "PIP_CONFIG_FILE",
        "PIP_INDEX_URL",
        "PIP_FIND_LINKS",
        "SSL_CERT_FILE",
        "https_proxy",
        "http_proxy",
    ):
        if name in os.environ:
            variables[name] = os.environ[name]
    for tool in ("node", "npm", "jlpm", "cc", "cmake"):
        require(shutil.which(tool, path=path) is None, f"{tool} is on the PATH {path}")
    say("installing it into a fresh environment")
    install_environment = {**variables, "HOME": os.environ.get("HOME", str(folder))}
    run([f"{path}/python", "-m", "pip", "install", "--quiet", f"{wheel}{EXTRAS}"], env=install_environment)

    said = run([f"{path}/jupyter", "labextension", "list"], env=variables)
    print(said, end="")
    lab = [line for line in said.splitlines() if "jupyter-gpupool" in line]
    require(bool(lab) and "enabled" in lab[0] and "OK" in lab[0], f"`jupyter labextension list` says {lab}")

    said = run([f"{path}/jupyter", "server", "extension", "list"], env=variables)
    print(said, end="")
    require(
        re.search(r"jupyter_gpupool\S* .*enabled", said) is not None, "the server extension is not enabled"
    )
    require(
        re.search(r"jupyter_gpupool.*(OK|✓|\bok\b)", said, re.IGNORECASE) is not None,
        "`jupyter server extension list` does not validate it",
    )

    said = run([f"{path}/gpupool", "--help"], env=variables)
    require("kernel-packs" in said, "`gpupool --help` does not list its commands")
    said = run([f"{path}/python", "-c", _NATIVE], env=variables)
    print(said, end="")

    serves(path, variables, folder)
    say("the wheel is whole, and on by itself")


_NATIVE = """
from gpupool.client.native import native_directory
found = sorted(str(p.relative_to(native_directory())) for p in native_directory().rglob("*.so*"))
assert "client/libcuda.so.1" in found, found
assert (native_directory() / "bin" / "gpupool-worker").exists()
print(len(found), "native libraries in", native_directory())
"""


def serves(path: str, variables: dict[str, str], folder: Path) -> None:
    """`jupyter server` has loaded the extension, and serves the front end."""
    token = secrets.token_hex(16)
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [f"{path}/jupyter", "server", "--no-browser", "--allow-root", "--ServerApp.port=0",
             f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={token}"],
            env={**variables, "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}, stdout=output, stderr=output, cwd=folder,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 90
        started: list[Path] = []
        while not started:
            require(process.poll() is None and time.monotonic() < deadline, f"no server:\n{log.read_text()}")
            time.sleep(0.2)
            started = list((folder / "runtime").glob("jpserver-*.json"))
        url = str(json.loads(started[0].read_text())["url"])

        def get(what: str) -> bytes:
            asked = urllib.request.Request(url + what, headers={"Authorization": f"token {token}"})
            with urllib.request.urlopen(asked, timeout=30) as reply:
                return bytes(reply.read())

        pool = json.loads(get("gpupool/api/pool"))
        require(pool["ok"] is False and "does not answer" in pool["error"], f"without a pool it says {pool}")
        require(
            json.loads(get("gpupool/api/kernels")) == {"kernels": []}, "it lists kernels that are not there"
        )
        say(f"`jupyter server` answers; without a pool: {pool['error']}")
        package = json.loads(get("lab/extensions/jupyter-gpupool/package.json"))
        entry = package["jupyterlab"]["_build"]["load"]
        require(len(get(f"lab/extensions/jupyter-gpupool/{entry}")) > 1000, "the front end is not served")
        text = log.read_text()
        require("jupyter_gpupool | extension was successfully loaded" in text, f"not loaded:\n{text}")
    finally:
        process.terminate()
        process.wait(30)


def run(command: list[str], *, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    require(done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def require(condition: bool, problem: str) -> None:
    if not condition:
        raise SystemExit(f"wheel-check: {problem}")


def say(text: str) -> None:
    print(f"wheel-check: {text}", flush=True)


if __name__ == "__main__":
    main()
