"""One of Triton's tutorials, with its own checks and ours: ``triton_suite.py`` starts it with the tutorial's file.

The tutorial is used where it lies. Sizes are made smaller, one configuration of each kernel is tried instead of dozens,
and what measures speed is left out; what PyTorch computes around the kernels is computed on the CPU (``eager_on_cpu.py``).
Ends with an error if a result is wrong. Run by an interpreter with PyTorch and Triton.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.conformance.eager_on_cpu import enter

#: Sizes in the tutorials' text, and what they become. A tutorial without its text is refused: it would take an hour.
SIZES: Final[dict[str, dict[str, str]]] = {
    "02": {"torch.randn(1823, 781": "torch.randn(123, 781"},
    "03": {"(512, 512)": "(128, 128)"},
    "05": {"test_layer_norm(1151, 8192": "test_layer_norm(43, 1024"},
}


def _without_measuring() -> None:
    """Makes `triton.testing.perf_report` a decorator whose `run` does nothing, and `autotune` take one configuration."""
    import triton

    nothing = types.SimpleNamespace(run=lambda *_, **__: None)
    triton.testing.perf_report = lambda _benchmarks: lambda _function: nothing
    tuned = triton.autotune
    triton.autotune = lambda configs, *rest, **named: tuned(configs[-1:], *rest, **named)


def _tables_without_a_package() -> None:
    """The fourth tutorial prints its results with the package tabulate, which no other needs."""
    if importlib.util.find_spec("tabulate") is None:
        module = types.ModuleType("tabulate")
        module.__spec__ = importlib.machinery.ModuleSpec("tabulate", None)
        module.tabulate = lambda rows, **_: "\n".join(map(str, rows))  # type: ignore[attr-defined]
        sys.modules["tabulate"] = module


def _vector_add(found: dict[str, Any], _said: str) -> None:
    import torch

    assert torch.equal(found["output_triton"], found["output_torch"])


def _softmax(found: dict[str, Any], _said: str) -> None:
    import torch

    assert torch.allclose(found["y_triton"], found["y_torch"])


def _products(_found: dict[str, Any], said: str) -> None:
    """In half precision and in eight bits."""
    assert said.count("Triton and Torch match") == 2, said
    assert "differ" not in said, said


def _dropout(found: dict[str, Any], _said: str) -> None:
    import torch

    x, keep = torch.randn(5000), (torch.rand(5000) > 0.3).to(torch.int32)
    device_x, device_keep = x.to("cuda"), keep.to("cuda")
    kept = found["dropout"](device_x, device_keep, 0.3).cpu()
    assert torch.allclose(kept, torch.where(keep.bool(), x / (1 - 0.3), 0.0))
    first, again, other = (found["seeded_dropout"](device_x, p=0.5, seed=seed).cpu() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.allclose(first[first != 0], (x * 2)[first != 0])
    assert 0.45 < (first == 0).float().mean() < 0.55


def _layer_norm(found: dict[str, Any], _said: str) -> None:
    found["test_layer_norm"](17, 300, found["torch"].float16)


def _attention(found: dict[str, Any], _said: str) -> None:
    """Forward and backward, with a mask and without."""
    for causal in (False, True):
        found["test_op"](1, 2, 256, 64, causal, False, "bwd", "triton-fp16")


CHECKS: Final[dict[str, Callable[[dict[str, Any], str], None]]] = {
    "01": _vector_add, "02": _softmax, "03": _products, "04": _dropout, "05": _layer_norm, "06": _attention,
}  # fmt: skip


def run(tutorial: Path) -> None:
    number = tutorial.name[:2]
    text = tutorial.read_text()
    for before, after in SIZES.get(number, {}).items():
        if before not in text:
            raise SystemExit(f"{tutorial}: {before!r} is not in it; it may be of another version of Triton")
        text = text.replace(before, after)
    # The sixth chooses one configuration itself under pytest.
    os.environ.setdefault("PYTEST_VERSION", "0")
    if number == "04":
        _tables_without_a_package()
    _without_measuring()
    enter()
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        # Triton reads the source of its kernels, so it must lie in a file.
        smaller = Path(folder) / tutorial.name
        smaller.write_text(text)
        found = runpy.run_path(str(smaller))
        CHECKS[number](found, said.getvalue())
    print(said.getvalue()[-1000:])


if __name__ == "__main__":
    run(Path(sys.argv[1]))
