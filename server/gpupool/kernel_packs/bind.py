"""Which machine code a PTX file belongs to, and what of it can be used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpupool.kernel_packs.library import FatBinary, Frame
from gpupool.kernel_packs.names import normalised
from gpupool.kernel_packs.ptx_text import Kind, Piece, parameters, pieces

#: Texts that kernels print or name themselves by: constant, so each kernel may have its own copy.
_TEXT: Final = re.compile(r"\$str|__unnamed_|.*(__PRETTY_FUNCTION__|__func__)")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*")


class Names:
    """Finds the fat binary that has a set of kernels."""

    def __init__(self, fat_binaries: Sequence[FatBinary]) -> None:
        self._fat_binaries = fat_binaries
        self._where: dict[str, list[int]] = {}
        for index, each in enumerate(fat_binaries):
            for name in each.kernels if not each.has_ptx else ():
                self._where.setdefault(normalised(name), []).append(index)

    def best(self, kernels: Iterable[str]) -> FatBinary | None:
        """The one with most of these kernels, among equals the one with the fewest others; None if none has any."""
        found = Counter(index for name in kernels for index in self._where.get(normalised(name), ()))
        if not found:
            return None
        return self._fat_binaries[
            max(found, key=lambda index: (found[index], -len(self._fat_binaries[index].kernels)))
        ]


@dataclass(frozen=True, slots=True)
class Bound:
    """PTX under the names of a fat binary.

    Attributes:
        frames: what can be used.
        other_parameters: kernels that are left out because the machine code takes other parameters.
        absent: kernels of the fat binary that the PTX does not have.
    """

    frames: tuple[Frame, ...]
    other_parameters: tuple[str, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX file taken apart."""

    header: str
    kernels: Mapping[str, Piece]
    others: Mapping[str, tuple[Piece, ...]]  # by name: declarations and definition


def read_module(text: str) -> Module:
    """Takes PTX apart.

    Raises:
        NotPtxError: it is none.
    """
    header = ""
    kernels: dict[str, Piece] = {}
    others: dict[str, tuple[Piece, ...]] = {}
    for piece in pieces(text):
        match piece.kind:
            case Kind.HEADER:
                header = piece.text
            case Kind.KERNEL:
                kernels[piece.name] = piece
            case Kind.FUNCTION | Kind.VARIABLE:
                others[piece.name] = (*others.get(piece.name, ()), piece)
            case Kind.OTHER:
                header += piece.text
    return Module(header, kernels, others)


def bind(module: Module, fat_binary: FatBinary) -> Bound:
    """Gives the kernels of a module the names that a fat binary has for them, and checks their parameters."""
    known = {normalised(name): name for name in (*fat_binary.variables, *fat_binary.kernels)}
    renamed = {name: known.get(normalised(name), name) for name in (*module.kernels, *module.others)}
    usable: dict[str, Piece] = {}
    wrong: list[str] = []
    for name, piece in module.kernels.items():
        layout = fat_binary.kernels.get(renamed[name])
        if layout is None:
            continue
        if tuple(parameters(piece)) == layout:
            usable[name] = piece
        else:
            wrong.append(renamed[name])
    frames = tuple(_frames(module, usable, renamed, fat_binary.variables))
    have = {name for frame in frames for name in frame.names}
    return Bound(frames, tuple(sorted(wrong)), tuple(sorted(set(fat_binary.kernels) - have - set(wrong))))


def _frames(
    module: Module, kernels: Mapping[str, Piece], renamed: Mapping[str, str], variables: frozenset[str]
) -> Iterable[Frame]:
    uses = _uses(module)
    needs = {name: _closure(uses[name], uses) for name in kernels}
    for group in _sharing(module, needs):
        wanted = frozenset().union(*(needs[name] for name in group))
        texts = [module.header]
        texts += [piece.text for name, parts in module.others.items() if name in wanted for piece in parts]
        texts += [kernels[name].text for name in group]
        shared = (
            renamed[name]
            for name in sorted(wanted)
            if renamed[name] in variables and _is_shared(module.others[name])
        )
        yield Frame((*(renamed[name] for name in group), *shared), _rename("".join(texts), renamed))


def _uses(module: Module) -> dict[str, frozenset[str]]:
    """What each piece mentions of what the module declares besides kernels."""
    found = {}
    others = list(module.others)
    for name, piece in module.kernels.items():
        found[name] = _mentioned((piece,), others)
    for name, parts in module.others.items():
        found[name] = _mentioned(parts, others) - {name}
    return found


def _mentioned(parts: Sequence[Piece], names: Sequence[str]) -> frozenset[str]:
    text = "".join(part.text for part in parts)
    candidates = [name for name in names if name in text]
    if not candidates:
        return frozenset()
    # A name may be the beginning of another.
    return frozenset(candidates) & set(_IDENTIFIER.findall(text))


def _closure(first: frozenset[str], uses: Mapping[str, frozenset[str]]) -> frozenset[str]:
    reached: set[str] = set()
    waiting = list(first)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += uses[name]
    return frozenset(reached)


def _sharing(module: Module, needs: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Kernels in groups: those that use the same variable stand together, so that it exists once."""
    group_of: dict[str, list[str]] = {}
    owner: dict[str, str] = {}
    for kernel, names in needs.items():
        group_of[kernel] = [kernel]
        for variable in names:
            if not _is_shared(module.others[variable]):
                continue
            first = group_of[owner.setdefault(variable, kernel)]
            if first is not group_of[kernel]:
                joined = first + group_of[kernel]
                for each in joined:
                    group_of[each] = joined
    return list({id(group): group for group in group_of.values()}.values())


def _is_shared(parts: Sequence[Piece]) -> bool:
    piece = parts[-1]
    if piece.kind is not Kind.VARIABLE or _TEXT.match(piece.name):
        return False
    return ".shared" not in piece.text.partition("=")[0]


def _rename(text: str, renamed: Mapping[str, str]) -> str:
    changed = {name: to for name, to in renamed.items() if name != to and name in text}
    if not changed:
        return text
    return _IDENTIFIER.sub(lambda match: changed.get(match[0], match[0]), text)
