"""Blocks of `console` that tests do not run, each with the reason; `sh` blocks are run, every one of them."""

from __future__ import annotations

from typing import Final

_SERVICE: Final = "runs until it is told to end; the test's own pool and node stand in its place"
_MACHINES: Final = "needs machines with the addresses of the example"
_RELEASE: Final = "needs the package on an index, or a build; `make wheel-check` installs and uses the wheel"
_CLUSTER: Final = "needs a Kubernetes cluster; `make helm-check` starts one for tests"
_CONTAINERS: Final = "needs Docker or Podman; tests/unit/test_containers.py checks the recipes"
_SSH: Final = "needs two machines with SSH between them"
_NODE: Final = (
    "gpupool node start --name gpu1 --pool 10.0.0.5:7460 --token-file gpu1.token --listen-host 10.0.0.6"
)

_STANDBY: Final = "needs PostgreSQL and two servers; test_standby_page.py starts them and follows the page"
_STANDBY_NODE: Final = "gpupool node start --name gpu1 --pool 10.0.0.5:7460,10.0.0.7:7460"

#: By page: how the block begins, and why it is not run.
NOT_RUN: Final[dict[str, dict[str, str]]] = {
    "how-to/backups.md": {
        "sudo systemctl stop gpupool": "needs systemd; tests/integration/test_backup.py restores",
        "pip install": "needs a PostgreSQL server; tests/integration/test_crash_points.py uses one where it is installed",
    },
    "how-to/containers.md": {
        "make release": _CONTAINERS,
        "docker run --detach --name gpupool --network": _CONTAINERS,
        "docker exec gpupool gpupool health": _CONTAINERS,
        "sudo chown 1000:1000 gpu1.token": _CONTAINERS,
        "sudo chown 1000:1000 ann.token": _CONTAINERS,
        "docker exec gpupool gpupool pool backup": _CONTAINERS,
    },
    "how-to/drain.md": {"gpupool node start": _SERVICE},
    "how-to/firewall.md": {f"{_NODE} --port-range": _MACHINES},
    "how-to/install.md": {"pip install": _RELEASE, "make wheel": _RELEASE},
    "how-to/jupyterhub.md": {"gpupool pool serve": "needs a JupyterHub; `make hub-check` starts one"},
    "how-to/jupyterhub-kubernetes.md": {
        "helm install": _CLUSTER,
        "helm repo add": "needs a Kubernetes cluster and the chart of Zero to JupyterHub",
    },
    "how-to/kubernetes.md": {
        "docker build": "needs a registry of images",
        "kubectl create namespace": _CLUSTER,
        "kubectl --namespace gpupool exec": _CLUSTER,
        "kubectl --namespace gpupool exec gpupool-0 -- gpupool pool backup": _CLUSTER,
        "(umask 077; kubectl --namespace gpupool exec": _CLUSTER,
        "gpupool pool serve": _CLUSTER,
        "helm uninstall": _CLUSTER,
    },
    "how-to/kernel-packs.md": {
        "python3 -c 'import torch": "needs PyTorch",
        "gpupool kernel-packs build": "needs PyTorch's sources and nvcc; "
        "tests/integration/test_kernel_packs.py builds a small one",
        "gpupool kernel-packs build --library": "needs bitsandbytes; test_kernel_packs.py does it with a small library",
    },
    "how-to/math-libraries.md": {"pip install": "installs NVIDIA's libraries of some gigabytes"},
    "how-to/monitoring.md": {"gpupool pool serve": "tests/integration/test_metrics.py serves and reads them"},
    "how-to/nodes.md": {"gpupool node start": _SERVICE},
    "how-to/one-machine.md": {
        "pip install": _RELEASE,
        "gpupool up": "runs until it is told to end; the tests of `gpupool up` start it",
    },
    "how-to/run-as-services.md": {
        "sudo useradd": "needs root",
        "sudo systemctl": "needs systemd",
        "sudo -u gpupool": "needs the user gpupool",
        "(umask 077; sudo -u gpupool": "needs the user gpupool",
        "sudo install": "needs systemd",
    },
    "how-to/slurm-own-jobs.md": {
        "gpupool lab": "needs a Slurm cluster; `make slurm-check` starts one, and uses it as a user without rights"
    },
    "how-to/slurm.md": {
        "(umask 077": "needs a Slurm cluster; `make slurm-check` starts one",
        "gpupool pool serve": "needs a Slurm cluster; `make slurm-check` starts one",
    },
    "how-to/several-machines.md": {
        "gpupool pool serve": _MACHINES,
        _NODE: _MACHINES,
        "gpupool node start --software-gpus": _SERVICE,
        "gpupool gpu list": _MACHINES,
    },
    "how-to/simulate.md": {
        "gpupool pool simulate": "its list has no projects; tests/unit/test_simulate.py has one that does"
    },
    "how-to/ssh.md": {
        "gpupool pool serve": _SERVICE,
        "(umask 077; for port": _SSH,
        "while true": _SSH,
        "export GPUPOOL_ENDPOINT": _SSH,
    },
    "how-to/standby.md": {
        "gpupool pool serve": _STANDBY,
        "(umask 077; gpupool token create": _STANDBY,
        _STANDBY_NODE: _STANDBY,
        "gpupool run": _STANDBY,
        "pkill": _STANDBY,
        "gpupool health": _STANDBY,
    },
    "how-to/tls.md": {"gpupool pool serve": _MACHINES},
    "how-to/users.md": {"sudo install": "needs root and a user ann"},
    "tutorial/first-gpu-cell.md": {"git clone": "the test is in a clone, and `make test` has built it"},
    "tutorial/first-pool.md": {
        "gpupool pool serve": _MACHINES,
        "gpupool node start": _MACHINES,
        "export GPUPOOL_ENDPOINT": _MACHINES,
    },
}

#: Guides without a command or a cell of their own to run.
NOTHING_TO_RUN: Final[dict[str, str]] = {
    "how-to/containers.md": "see the blocks above",
    "how-to/install.md": "see the blocks above",
    "how-to/jupyter-settings.md": "settings; test_blocks.py checks their names and values",
    "how-to/jupyterhub.md": "see the block above",
    "how-to/jupyterhub-kubernetes.md": "see the blocks above",
    "how-to/kubernetes.md": "see the blocks above; tests/documentation/test_blocks.py reads the files",
    "how-to/monitoring.md": "see the block above",
    "how-to/one-machine.md": "see the blocks above",
    "how-to/run-as-services.md": "units of systemd",
    "how-to/slurm-own-jobs.md": "see the block above",
    "how-to/slurm.md": "see the blocks above",
    "how-to/ssh.md": "see the blocks above",
    "how-to/stop-or-reset.md": "what a person does at a hanging cell; "
    "ui-tests and tests/integration/test_jupyter_stop.py do it",
    "how-to/tls.md": "see the block above",
}
