"""PTX for scalar instructions and atomics: a kernel each, which applies one spelling to many inputs, a thread for each.

A kernel's parameters are pointers: to each source (the carry flag last), then to each result (the carry flag last). A thread takes
element number ctaid * ntid + tid of each; an atomic of several elements takes that many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcsim.isa.scalar.atomic import Atomic
from tcsim.isa.scalar.table import CONTAINERS, Scalar

BLOCK = 256
"""Threads of a block."""


_WIDE = {"u8": "u32", "u16": "u32", "s8": "s32", "s16": "s32"}


@dataclass(frozen=True)
class Probe:
    """A spelling to run: an instruction and its immediate operand if it has one, or an atomic in a state space."""

    item: Scalar | Atomic
    immediate: int | None = None
    space: str = ""
    stem: str = ""  # of an atomic: "atom" or "red"

    @property
    def name(self) -> str:
        """What identifies it."""
        if isinstance(self.item, Atomic):
            return ".".join(word for word in (self.stem, self.space, self.item.mnemonic) if word)
        return self.item.mnemonic + (f" {self.immediate:#x}" if self.immediate is not None else "")

    @property
    def opcode(self) -> str:
        """The spelling as the assembler takes it."""
        return self.name.split(" ")[0].removesuffix("|").removesuffix("/3")

    @property
    def count(self) -> int:
        """Elements that a thread takes."""
        return self.item.count if isinstance(self.item, Atomic) else 1

    @property
    def sources(self) -> tuple[str, ...]:
        """Types of the inputs, the carry flag as a predicate."""
        if isinstance(self.item, Atomic):
            return (self.item.type,) * (1 + self.item.operands)
        own = tuple(type for place, type in enumerate(self.item.sources) if place not in self.item.immediates)
        return own + ("pred",) * self.item.reads_carry

    @property
    def results(self) -> tuple[str, ...]:
        """Types of what comes back: of a small integer that cvt makes, the 32 bits of the register (bf16 needs one of 16 bits)."""
        if isinstance(self.item, Atomic):
            return (self.item.type,) * (2 if self.stem == "atom" else 1)
        widens = self.item.mnemonic.startswith("cvt") and "bf16" not in self.item.sources
        own = tuple(_WIDE.get(type, type) if widens else type for type in self.item.results)
        return own + ("pred",) * self.item.writes_carry


def _class(type: str) -> str:
    """The register class of a type."""
    if type in ("f32", "f64", "pred"):
        return {"f32": "f", "f64": "g", "pred": "p"}[type]
    return {1: "h", 2: "h", 4: "r", 8: "d"}[CONTAINERS[type].itemsize]


def _word(type: str) -> str:
    """The type that a load or store names."""
    if type in ("f32", "f64"):
        return type
    return "u8" if type == "pred" else f"b{8 * CONTAINERS[type].itemsize}"


def _load(type: str, place: int) -> list[str]:
    size = CONTAINERS[type].itemsize
    at = [f"ld.param.u64 %a0, [p{place}];", f"mad.wide.u32 %a0, %i0, {size}, %a0;"]
    if type == "pred":
        return [*at, f"ld.global.u8 %h{place}, [%a0];", f"setp.ne.u16 %p{place}, %h{place}, 0;"]
    return [*at, f"ld.global.{_word(type)} %{_class(type)}{place}, [%a0];"]


def _store(type: str, place: int, register: str) -> list[str]:
    at = [f"ld.param.u64 %a0, [p{place}];", f"mad.wide.u32 %a0, %i0, {CONTAINERS[type].itemsize}, %a0;"]
    if type == "pred":
        return [*at, f"selp.u16 %h9, 1, 0, {register};", "st.global.u8 [%a0], %h9;"]
    return [*at, f"st.global.{_word(type)} [%a0], {register};"]


def _scalar(probe: Probe, item: Scalar) -> list[str]:
    lines = [line for place, type in enumerate(probe.sources) for line in _load(type, place)]
    if item.reads_carry:
        place = len(probe.sources) - 1
        lines += [f"selp.u32 %i1, 1, 0, %p{place};", "add.cc.u32 %i1, %i1, 0xffffffff;"]
    own = iter(f"%{_class(type)}{place}" for place, type in enumerate(probe.sources))
    operands = [str(probe.immediate) if place in item.immediates else next(own) for place in range(len(item.sources))]
    results = [f"%{_class(type)}{6 + place}" for place, type in enumerate(probe.results)]
    plain = results[: len(item.results)]
    lines.append(f"{probe.opcode} {', '.join(['|'.join(plain), *operands])};")
    if item.writes_carry:
        lines += ["addc.u32 %i1, 0, 0;", f"setp.ne.u32 {results[-1]}, %i1, 0;"]
    first = len(probe.sources)
    return lines + [
        line
        for place, (type, register) in enumerate(zip(probe.results, results, strict=True))
        for line in _store(type, first + place, register)
    ]


def _group(type: str, place: int, count: int) -> str:
    registers = [f"%{_class(type)}{8 * place + item + 10}" for item in range(count)]
    return registers[0] if count == 1 else "{" + ", ".join(registers) + "}"


def _atomic(probe: Probe, item: Atomic) -> list[str]:
    """Old values go to a place of the thread's own, in shared memory or where the last result is; then the atomic."""
    size, count, type = CONTAINERS[item.type].itemsize, item.count, item.type
    lines = []

    def each(action: str, place: int, base: str) -> list[str]:
        moved = []
        for number in range(count):
            register = f"%{_class(type)}{8 * place + number + 10}"
            at = f"[{base}+{size * number}]"
            ends = (register, at) if action.startswith("ld") else (at, register)
            moved.append(f"{action}.{_word(type)} {ends[0]}, {ends[1]};")
        return moved

    for place in range(len(probe.sources)):
        lines += [f"ld.param.u64 %a0, [p{place}];", f"mad.wide.u32 %a0, %i0, {size * count}, %a0;"]
        lines += each("ld.global", place, "%a0")
    last = len(probe.sources) + len(probe.results) - 1
    lines += [f"ld.param.u64 %a1, [p{last}];", f"mad.wide.u32 %a1, %i0, {size * count}, %a1;"]
    shared = probe.space.startswith("shared")
    if shared or probe.space == "":
        lines += ["mov.u32 %i1, slots;", "mov.u32 %i2, %tid.x;", f"mad.lo.u32 %i1, %i2, {size * count}, %i1;"]
    where = "%i1" if shared else "%a1"
    own = "shared" if shared else "global"
    lines += each(f"st.{own}", 0, where)
    lines.append("membar.gl;")
    given = [_group(type, place, count) for place in range(1, len(probe.sources))]
    old = [_group(type, 3, count)] if probe.stem == "atom" else []
    lines.append(f"{probe.opcode} {', '.join([*old, f'[{where}]', *given])};")
    lines.append("membar.gl;")
    if shared:
        lines += [*each("ld.shared", 0, "%i1"), *each("st.global", 0, "%a1")]
    if probe.stem == "atom":
        lines += [f"ld.param.u64 %a0, [p{last - 1}];", f"mad.wide.u32 %a0, %i0, {size * count}, %a0;"]
        lines += each("st.global", 3, "%a0")
    return lines


def kernel(probe: Probe, name: str) -> str:
    """The PTX of one entry."""
    body = _atomic(probe, probe.item) if isinstance(probe.item, Atomic) else _scalar(probe, probe.item)
    params = ", ".join(f".param .u64 p{place}" for place in range(len(probe.sources) + len(probe.results)))
    return "\n".join(
        [
            f".visible .entry {name}({params})",
            "{",
            ".reg .b32 %i<3>; .reg .b64 %a<2>; .reg .pred %p<10>; .reg .b16 %h<48>; .reg .b32 %r<48>; .reg .b64 %d<48>;",
            ".reg .f32 %f<48>; .reg .f64 %g<48>;",
            f".shared .align 16 .b8 slots[{16 * BLOCK}];" * isinstance(probe.item, Atomic),
            "mov.u32 %i0, %ctaid.x;",
            "mov.u32 %i1, %tid.x;",
            f"mad.lo.u32 %i0, %i0, {BLOCK}, %i1;",
            *body,
            "ret;",
            "}",
        ]
    )


def module(probes: Sequence[Probe], target: str, version: str) -> str:
    """A module with an entry for each: k0, k1, ..."""
    head = f".version {version}\n.target {target}\n.address_size 64\n"
    return head + "\n".join(kernel(probe, f"k{place}") for place, probe in enumerate(probes)) + "\n"
