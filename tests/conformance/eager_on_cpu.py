"""PyTorch's ready-made operations on the CPU, for tensors that live on a software GPU.

PyTorch's own kernels are machine code for real GPUs. Programs that test Triton use them around their own kernels: to make
inputs and to say what is right. In :class:`EagerOnCpu` such an operation fetches its operands, computes on the CPU and
brings the result back; what needs no kernel (views, allocation) stays as it is, and kernels of Triton do not come by here.
So what a program compares with has been computed by PyTorch on the CPU, and what it compares by the software GPU.

Run by an interpreter with PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

#: Write their result and still need no kernel.
_WITHOUT_KERNEL = {"aten::set_", "aten::resize_", "aten::record_stream", "aten::empty", "aten::empty_like"}
_WITHOUT_KERNEL |= {"aten::empty_strided", "aten::new_empty", "aten::new_empty_strided", "aten::_pin_memory"}


def _on_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


def _is_view(function: Any) -> bool:
    """Whether the results share their operands' memory and nothing is written."""
    aliases = [result.alias_info for result in function._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


class _Fetched:
    """Storages on the CPU, each once, so that operands that share memory still do."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def fetch(self, value: Any) -> Any:
        if isinstance(value, torch.Generator) and value.device.type == "cuda":
            return None
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        if not _on_device(value):
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in self._copies:
            self._copies[storage.data_ptr()] = storage, storage.cpu()
        copy = self._copies[storage.data_ptr()][1]
        fetched = torch.empty(0, dtype=value.dtype)
        return fetched.set_(copy, value.storage_offset(), value.shape, value.stride())  # type: ignore[call-overload]

    def bring_back(self, tensors: Iterable[torch.Tensor]) -> None:
        for pointer in {tensor.untyped_storage().data_ptr() for tensor in tensors}:
            if pointer in self._copies:
                storage, copy = self._copies[pointer]
                storage.copy_(copy)


def _brought(value: Any, device: torch.device) -> Any:
    if not isinstance(value, torch.Tensor) or value.device.type == "cuda":
        return value
    dense = value if torch._prims_common.is_non_overlapping_and_dense_or_false(value) else value.contiguous()
    empty = torch.empty_strided(dense.shape, dense.stride(), dtype=dense.dtype, device=device)
    empty.untyped_storage().copy_(dense.clone(memory_format=torch.preserve_format).untyped_storage())
    return empty


class EagerOnCpu(TorchDispatchMode):  # type: ignore[misc]
    """While active: every operation on device tensors that would launch a kernel of PyTorch's computes on the CPU."""

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        operands = [value for value in tree_iter((args, named)) if _on_device(value)]
        asked = named.get("device")
        to_device = torch.device(asked).type == "cuda" if asked is not None else bool(operands)
        if not (operands or to_device) or function._schema.name in _WITHOUT_KERNEL or _is_view(function):
            return function(*args, **named)
        device = operands[0].device if operands else torch.device("cuda", torch.cuda.current_device())
        fetched = _Fetched()
        here, here_named = tree_map(fetched.fetch, (args, named))
        if asked is not None:
            here_named["device"] = torch.device("cpu")
        found = function(*here, **here_named)
        written = _written(function, args, named)
        fetched.bring_back(tensor for tensor in written if _on_device(tensor))
        if written and all(result.alias_info is not None for result in function._schema.returns):
            # In place, or into `out`: the result is what was given.
            return _given(function, args, named)
        return tree_map(lambda value: _brought(value, device), found) if to_device else found


def _arguments(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> list[tuple[Any, Any]]:
    """What each parameter of the operation was given."""
    given = []
    for position, parameter in enumerate(function._schema.arguments):
        if position < len(args) and not parameter.kwarg_only:
            given.append((parameter, args[position]))
        elif parameter.name in named:
            given.append((parameter, named[parameter.name]))
    return given


def _written(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> list[torch.Tensor]:
    written: list[torch.Tensor] = []
    for parameter, value in _arguments(function, args, named):
        if parameter.alias_info is not None and parameter.alias_info.is_write:
            written += [leaf for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor)]
    return written


def _given(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    values = [
        value
        for parameter, value in _arguments(function, args, named)
        if parameter.alias_info is not None and parameter.alias_info.is_write
    ]
    count = len(function._schema.returns)
    return None if count == 0 else values[0] if count == 1 else tuple(values[:count])


def enter() -> None:
    """Enters the mode for the rest of this process."""
    EagerOnCpu().__enter__()
    text_of = torch._tensor_str._str

    # PyTorch leaves all modes while it writes a tensor down, and then computes on it.
    def text(self: torch.Tensor, *, tensor_contents: Any = None) -> str:
        return str(text_of(_Fetched().fetch(self.detach()), tensor_contents=tensor_contents))

    torch._tensor_str._str = text
