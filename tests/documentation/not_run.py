"""Blocks of `console` that tests do not run, each with the reason; `sh` blocks are run, every one of them."""

from __future__ import annotations

from typing import Final

_SERVICE: Final = "runs until it is told to end; the test's own pool and node stand in its place"
_MACHINES: Final = "needs machines with the addresses of the example"
_RELEASE: Final = "needs the package on an index, or a build; `make wheel-check` installs and uses the wheel"

#: By page and first line of the block.
NOT_RUN: Final[dict[tuple[str, str], str]] = {
    ("how-to/backups.md", "systemctl stop gpupool"): "needs systemd; tests/integration/test_backup.py restores",
    ("how-to/backups.md", "pip install 'jupyter-gpupool[postgresql]'"): "needs a PostgreSQL server",
    ("how-to/firewall.md", "gpupool node start --name gpu1 --pool 10.0.0.5:7460 --token-file gpu1.token --listen-host 10.0.0.6 --port-range 40000-40099"): _MACHINES,
    ("how-to/install.md", "pip install 'jupyter-gpupool[lab]'"): _RELEASE,
    ("how-to/install.md", "make build"): _RELEASE,
    ("how-to/jupyterhub.md", "gpupool pool serve --listen 10.0.0.5:7460 --tls-certificate pool.pem --tls-key pool.key --hub-api-url https://hub.example.org/hub/api"): "needs a JupyterHub; `make hub-check` starts one",
    ("how-to/kernel-packs.md", "gpupool kernel-packs build --torch python3 --source pytorch-v2.6.0.tar.gz"): "needs PyTorch's sources and nvcc; tests/integration/test_kernel_packs.py builds a small one",
    ("how-to/math-libraries.md", "pip install 'jupyter-gpupool[pool,cuda13]'"): "installs NVIDIA's libraries of some gigabytes",
    ("how-to/monitoring.md", "gpupool pool serve --metrics 127.0.0.1:9464"): "tests/integration/test_metrics.py serves and reads them",
    ("how-to/nodes.md", "gpupool node start --name gpu1 --node-pool fast --label zone=a"): _SERVICE,
    ("how-to/run-as-services.md", "sudo -u gpupool GPUPOOL_HOME=/var/lib/gpupool /opt/gpupool/bin/gpupool health"): "needs the user gpupool",
    ("how-to/several-machines.md", "gpupool pool serve --listen 10.0.0.5:7460 --quota '*=1' --quota ann=2.5"): _MACHINES,
    ("how-to/several-machines.md", "gpupool node start --name gpu1 --pool 10.0.0.5:7460 --token-file gpu1.token --listen-host 10.0.0.6"): _MACHINES,
    ("how-to/several-machines.md", "gpupool node start --driver software --software-gpus 2 --memory-mib 8192"): _SERVICE,
    ("how-to/several-machines.md", "gpupool gpu list --pool 10.0.0.5:7460 --token-file ann.token"): _MACHINES,
    ("how-to/simulate.md", "gpupool pool simulate requests.csv --project research=6,weight=3 --project teaching=2,limit=4 --quota '*=2' --patience 10m"): "its list has no projects; tests/integration has one that does",
    ("how-to/tls.md", "gpupool pool serve --listen 10.0.0.5:7460 --tls-certificate pool.pem --tls-key pool.key"): _MACHINES,
    ("tutorial/first-gpu-cell.md", "pip install 'jupyter-gpupool[lab]'"): _RELEASE,
    ("tutorial/first-pool.md", "gpupool pool serve --listen 10.0.0.5:7460"): _MACHINES,
    ("tutorial/first-pool.md", "gpupool node start --name gpu1 --pool 10.0.0.5:7460 --token-file gpu1.token --listen-host 10.0.0.6"): _MACHINES,
    ("tutorial/first-pool.md", "export GPUPOOL_ENDPOINT=10.0.0.5:7460 GPUPOOL_TOKEN_FILE=ann.token"): _MACHINES,
}  # fmt: skip

#: Guides without a command or a cell of their own to run.
NOTHING_TO_RUN: Final[dict[str, str]] = {
    "how-to/install.md": "see the blocks above",
    "how-to/jupyter-settings.md": "settings; test_blocks.py checks their names and values",
    "how-to/jupyterhub.md": "see the block above",
    "how-to/monitoring.md": "see the block above",
    "how-to/run-as-services.md": "units of systemd",
    "how-to/stop-or-reset.md": "what a person does at a hanging cell; ui-tests and tests/integration/test_jupyter_stop.py do it",
    "how-to/tls.md": "see the block above",
}
