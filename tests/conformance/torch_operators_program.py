"""A sample of PyTorch's own operator database, forward and backward in float32, on a device beside the CPU.

Run by an interpreter with PyTorch; ``torch_operators.py`` starts it, and again behind an operator that ended the process.
Arguments: the sample's step (every so many operators of the sorted database) and the operator to begin at. One line of JSON for
each operator: before it is tried {"begin": name}, and afterwards how it ended.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

#: Inputs of an operator that are tried, and how far values may be apart: relative to the largest, sums in another order.
SAMPLES = 4
TOLERANCE = 1e-4


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def moved(value: Any, device: str) -> Any:
    """The same with every tensor on the device, as leaves of their own."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
        return torch.device(device) if isinstance(leaf, torch.device) else leaf

    return tree_map(one, value)


def computed(operator: Any, sample: Any, device: str, seed: int = 0) -> list[torch.Tensor]:
    """The results and the gradients of what was given, on the CPU."""
    given, arguments, keywords = (moved(part, device) for part in (sample.input, sample.args, sample.kwargs))
    if "device" in keywords:
        keywords["device"] = device
    torch.manual_seed(seed)
    results = tensors(operator.op(given, *arguments, **keywords))
    wanted = [one for one in tensors((given, arguments, keywords)) if one.requires_grad]
    able = [one for one in results if one.requires_grad]
    gradients: list[torch.Tensor | None] = []
    if operator.supports_autograd and wanted and able:
        total = sum((one.abs() if one.is_complex() else one).sum() for one in able)
        gradients = list(torch.autograd.grad(total, wanted, allow_unused=True))
    return [one.detach().cpu() for one in (*results, *gradients) if one is not None]


def apart(found: list[torch.Tensor], expected: list[torch.Tensor]) -> str:
    """Empty, or what differs."""
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}"
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{one.dtype} {tuple(one.shape)} for {other.dtype} {tuple(other.shape)}"
        if one.layout != torch.strided:
            one, other = one.to_dense(), other.to_dense()
        if not (one.is_floating_point() or one.is_complex()):
            if not torch.equal(one, other):
                return "other integers"
            continue
        one, other = (
            part.to(torch.complex128 if part.is_complex() else torch.float64) for part in (one, other)
        )
        finite = other[torch.isfinite(other)].abs()
        bound = TOLERANCE * max(1.0, float(finite.max()) if finite.numel() else 1.0)
        if not torch.allclose(one, other, rtol=TOLERANCE, atol=bound, equal_nan=True):
            return f"apart by {float((one - other).abs().nan_to_num().max()):.1e}"
    return ""


def drops_out(sample: Any) -> bool:
    """Attention's samples that set a seed of their own and then drop elements."""
    return bool(
        sample.kwargs.get("dropout_p") or (sample.kwargs.get("training") and "q_proj_weight" in sample.kwargs)
    )


def tried(operator: Any) -> dict[str, str]:
    """How it ended: `cpu` (does not run there), `random`, `equal`, `other`, or `error`, and why."""
    torch.manual_seed(1)
    samples = operator.sample_inputs("cpu", torch.float32, requires_grad=operator.supports_autograd)
    compared = random = 0
    for sample in samples:
        try:
            expected = computed(operator, sample, "cpu")
            otherwise = computed(operator, sample, "cpu", seed=1)
        except Exception:
            continue
        # Random numbers of a seed are others on the CPU than on any GPU, and what is not initialised is anything.
        if apart(otherwise, expected) or operator.name in RANDOM or drops_out(sample):
            random += 1
            continue
        try:
            found = computed(operator, sample, "cuda")
        except Exception as problem:
            return {"ended": "error", "why": f"{type(problem).__name__}: {problem}".splitlines()[0][:200]}
        if different := apart(found, expected):
            return {"ended": "other", "why": different}
        compared += 1
        if compared == SAMPLES:
            break
    return {"ended": "equal" if compared else "random" if random else "cpu", "why": ""}


#: What sets a seed of its own, and what is not initialised.
RANDOM = frozenset({
    "bernoulli", "multinomial", "normal", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "uniform", "exponential", "geometric", "log_normal", "cauchy", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout",
    "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "empty", "empty_like",
    "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "pca_lowrank", "svd_lowrank",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
})  # fmt: skip


def sampled(step: int, first: str) -> Iterator[Any]:
    usable = [operator for operator in op_db if torch.float32 in operator.supported_dtypes("cpu")]
    ordered = sorted(usable, key=full_name)[::step]
    return iter([operator for operator in ordered if full_name(operator) >= first])


def full_name(operator: Any) -> str:
    return (
        f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else str(operator.name)
    )


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    for chosen in sampled(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""):
        print(json.dumps({"begin": full_name(chosen)}), flush=True)
        print(json.dumps(tried(chosen)), flush=True)
        try:
            torch.cuda.synchronize()
            torch.ones(8, device="cuda").sum().item()
        except RuntimeError:
            # After a failed assertion of a kernel nothing more runs in this process, as on every GPU.
            print(json.dumps({"broken": True}), flush=True)
            sys.exit(0)
    print(json.dumps({"done": True}), flush=True)
