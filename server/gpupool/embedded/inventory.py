"""What a pool lends, in one sentence for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpupool.embedded.messages import Gpu


def sentence(gpus: Sequence[Gpu], providers: Sequence[str] = ()) -> str:
    """Says whether GPUs are real or emulated, how many, and how large, or from where they come when somebody needs them."""
    if providers:
        return f"It borrows GPUs from {' and '.join(providers)} while somebody needs them."
    if not gpus:
        return "It lends no GPU."
    software = [gpu for gpu in gpus if gpu.software]
    real = [gpu for gpu in gpus if not gpu.software]
    parts = []
    if real:
        parts.append(f"It lends {_counted(len(real), 'GPU')}: {_named(real)}.")
    if software:
        size = f"{software[0].mib / 1024:g} GiB{' each' if len(software) > 1 else ''}"
        why = "" if real else " No NVIDIA GPU is lent here."
        parts.append(
            f"It lends {_counted(len(software), 'software GPU')} ({size}): they run CUDA programs on the CPU, "
            f"far slower than a GPU.{why}"
        )
    return " ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _named(gpus: Sequence[Gpu]) -> str:
    names = Counter(f"{gpu.name}, {gpu.mib / 1024:.0f} GiB" for gpu in gpus)
    return "; ".join(name if count == 1 else f"{count} × {name}" for name, count in names.items())
