"""The kinds of providers: a row for each says which keys its table may have, and how it is opened."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpupool.providers.contract import Provider
from gpupool.providers.job_logs import JobLogs
from gpupool.providers.local import LocalProvider, LocalSettings
from gpupool.providers.slurm import SlurmProvider, SlurmSettings

#: Of Slurm's generic resources.
_PARTS_OF_A_GPU: Final = frozenset({"shard", "mps"})
_OTHER_CLUSTER: Final = ("clusters", "cluster-constraint")
#: Options of `sbatch` after which the pool would not find its job again, or would wait for its end.
_NOT_FOR_THE_POOL: Final = ("job-name", "array", "requeue", "wait", "quiet", "test-only")
#: Letters of those that `sbatch` takes without a value: others may follow in the same word.
_FLAGS: Final = "HIOQVWhksuv"


class SettingsError(ValueError):
    """The file cannot be used; `str()` is one sentence."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this pool is, for providers.

    Attributes:
        endpoint: what agents of this machine dial.
        reached_at: what agents of other machines dial; empty: the pool listens on this machine alone.
        ca_file: the authority of the certificate there, if only this pool knows it.
        leave_after: seconds without the pool after which an agent ends; None: it waits for the pool as long as its job lasts.
    """

    home: Path
    endpoint: str
    pool_id: str
    reached_at: str = ""
    ca_file: Path | None = None
    leave_after: float | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """What a provider is opened with.

    Attributes:
        name: of the provider in the pool.
        agent: the command that starts a node agent, without its token.
        token_file: of the agents; None: they need none, or it is where the engine's administrator put it.
        own: the values of the kind's own keys; times in seconds.
        home_is_shared: whether agents see the pool's home.
    """

    name: str
    place: Place
    agent: list[str]
    token_file: str | None
    own: Mapping[str, Any]
    home_is_shared: bool = False

    @property
    def logs(self) -> JobLogs:
        return JobLogs(self.place.home / "providers" / self.name)

    def with_token(self) -> list[str]:
        """The agent's command where it can read the file itself."""
        return [*self.agent, *(() if self.token_file is None else ("--token-file", self.token_file))]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of engine.

    Attributes:
        keys: its own keys, and what they must be. Times are texts.
        open: makes the provider; raises SettingsError.
        times: those of `keys` that are times.
        required: keys that must be there, each with a clause that says what it is.
        command: starts `gpupool` on a machine of the engine; by default as it was started here.
        elsewhere: agents are on other machines, and the files of this one's home may be there, too.
        token_is_handed: the provider gives agents the content of the token's file, unless `existing_secret` names what has it.
    """

    keys: Mapping[str, type]
    open: Callable[[Opening], Provider]
    times: frozenset[str] = frozenset()
    required: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = (sys.executable, "-m", "gpupool.cli.main")
    elsewhere: bool = False
    token_is_handed: bool = False


def _local(opening: Opening) -> Provider:
    home = opening.place.home
    return LocalProvider(
        LocalSettings(
            opening.logs.folder, opening.place.pool_id, opening.with_token(),
            environment={"GPUPOOL_HOME": str(home)}, **opening.own,
        )
    )  # fmt: skip


def _is_one_of(option: str, names: Iterable[str], letters: str) -> bool:
    """Whether `sbatch` may take it for one of these: the beginning of a long name is enough for it."""
    if not option.startswith("--"):
        return re.match(f"-[{_FLAGS}]*[{letters}]", option) is not None
    begun = option[2:].partition("=")[0]
    return bool(begun) and any(name.startswith(begun) for name in names)


def _slurm(opening: Opening) -> Provider:
    own = dict(opening.own)
    gres = own.get("gres", "")
    if gres.partition(":")[0] in _PARTS_OF_A_GPU:
        raise SettingsError(
            f"provider {opening.name}: gres {gres[:40]!r} is a part of a GPU, of which Slurm gives the rest to other jobs; "
            'the pool borrows whole GPUs and divides them itself, so write "gpu" or "gpu:TYPE"'
        )
    for option in own.get("options", ()):
        if _is_one_of(option, _OTHER_CLUSTER, "M"):
            raise SettingsError(
                f"provider {opening.name}: options has {option[:40]!r}, but the pool looks for its jobs in the cluster of this "
                "machine only; run the pool on a login node of the other cluster"
            )
        if option == ":" or _is_one_of(option, _NOT_FOR_THE_POOL, "JaWQ"):
            raise SettingsError(
                f"provider {opening.name}: options has {option[:40]!r}, with which the pool would not find its jobs again or "
                "would wait for their end; leave it out"
            )
    if "time_limit" in own:
        own["time_limit"] = max(1, math.ceil(own["time_limit"] / 60))
    if opening.home_is_shared:
        own["logs"] = opening.logs
    if opening.place.ca_file is not None:
        own.setdefault("ca_file", str(opening.place.ca_file))
    return SlurmProvider(SlurmSettings(opening.place.pool_id, opening.with_token(), **own))


def _kubernetes(opening: Opening) -> Provider:
    # Its client is an extra, and takes half a second to load.
    try:
        from gpupool.providers.kubernetes.provider import KubernetesProvider
    except ImportError as error:
        raise SettingsError(
            f"provider {opening.name}: {error.name} is missing; install jupyter-gpupool[kubernetes]"
        ) from None
    from gpupool.providers.kubernetes.settings import KubernetesSettings, KubernetesSettingsError

    own = dict(opening.own)
    if "ca_file" in own:
        own["ca_file"] = Path(own["ca_file"])
    existing = own.pop("existing_secret", "")
    if existing and (opening.token_file is not None or "secret" in own):
        raise SettingsError(
            f"provider {opening.name}: existing_secret {existing[:80]!r} has the token already; leave out token_file and secret"
        )
    if existing:
        own["secret"] = existing
    # In a pod the token is elsewhere; the provider knows where.
    token = None if opening.token_file is None else Path(opening.token_file)
    try:
        settings = KubernetesSettings(
            opening.place.pool_id, opening.name, opening.agent, token_file=token, **own
        )
    except KubernetesSettingsError as error:
        raise SettingsError(f"provider {opening.name}: {error}") from None
    return KubernetesProvider(settings)


KINDS: Final[Mapping[str, Kind]] = {
    "local": Kind(
        keys={"gpus": list, "time_limit": str},
        open=_local,
        times=frozenset({"time_limit"}),
    ),
    "slurm": Kind(
        keys={
            "partition": str, "account": str, "qos": str, "constraint": str, "gres": str, "time_limit": str,
            "options": list, "prolog": list, "output": str, "advertise_host": str, "programs": str, "ca_file": str,
        },
        open=_slurm,
        times=frozenset({"time_limit"}),
        elsewhere=True,
    ),
    "kubernetes": Kind(
        keys={
            "namespace": str, "kubeconfig": str, "context": str, "image": str, "resource": str, "device_class": str,
            "device_selector": str, "cpu": str, "memory": str, "node_selector": dict, "tolerations": list,
            "priority_class": str, "service_account": str, "runtime_class": str,
            "image_pull_secrets": list, "image_pull_policy": str,
            "environment": dict, "time_limit": str, "grace": str, "keep_ended": str, "secret": str,
            "existing_secret": str, "ca_file": str, "owner": str,
        },
        open=_kubernetes,
        times=frozenset({"time_limit", "grace", "keep_ended"}),
        required={
            "pool": "what the nodes dial to reach this pool, such as tls:HOST:PORT",
            "image": "the image of the node agent",
        },
        command=("gpupool",),
        token_is_handed=True,
    ),
}  # fmt: skip
