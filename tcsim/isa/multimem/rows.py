"""The spellings of multimem, as ptxas 13.5.37 takes them (targets, versions) and the PTX manual's grammar 9.4 lists them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from tcsim.arithmetic.reduction import Reduction
from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.core.targets import TARGETS, Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.model.form import Form
from tcsim.model.operand import Operand, Scope
from tcsim.model.row import Row, present
from tcsim.numbers.formats import FORMATS


@dataclass(frozen=True, kw_only=True)
class MultimemRow(Row):
    """A spelling of multimem."""

    type: str = ""  # of a register: "u32", "f16x2", "e4m3x4"
    count: int = 1  # registers of the vector
    reduction: Reduction | None = None
    accumulator: str = ""  # of sums that .acc names
    semantics: str = "relaxed"
    scope: str = "gpu"
    pending: bool = False  # .async: it lands later

    @property
    def combines(self) -> bool:
        """Reductions."""
        return self.reduction is not None

    @property
    def element(self) -> str:
        """The type of one number: "f16" of "f16x2"."""
        return self.type.split("x")[0]

    @property
    def element_bytes(self) -> int:
        """Of one number."""
        return _element_bits(self.element) // 8

    @property
    def register_bytes(self) -> int:
        """Of one register."""
        packed = self.type.partition("x")[2]
        return self.element_bytes * int(packed or 1)

    @property
    def bytes(self) -> int:
        """What a thread reads or writes."""
        return self.register_bytes * self.count


def _element_bits(type: str) -> int:
    return FORMATS[type].bits if type in FORMATS else int(type[1:])


LOAD, STORE, REDUCE = "multimem.ld_reduce", "multimem.st", "multimem.red"
STORE_ASYNC, REDUCE_ASYNC = "multimem.st.async", "multimem.red.async"
COPY, COPY_REDUCE = "multimem.cp.async.bulk", "multimem.cp.reduce.async.bulk"

_ORDERS = {
    LOAD: ("", "weak", "relaxed", "acquire"),
    STORE: ("", "weak", "relaxed", "release"),
    REDUCE: ("", "relaxed", "release"),
}
_SCOPES = ("cta", "cluster", "gpu", "sys")
_SPACES = ("", ".global")
_HALVES = tuple(product(("f16", "bf16"), (2, 4, 8))) + tuple(product(("f16x2", "bf16x2"), (1, 2, 4)))
_EIGHTHS = tuple(product(("e4m3x2", "e5m2x2"), (2, 4, 8))) + tuple(product(("e4m3x4", "e5m2x4"), (1, 2, 4)))
_SINGLES = (("f32", 1), ("f32", 2), ("f32", 4), ("f64", 1))
_INTEGERS = (
    *product(("min", "max"), ("u32", "s32", "u64", "s64")), *product(("add",), ("u32", "s32", "u64")),
    *product(("and", "or", "xor"), ("b32", "b64")),
)  # fmt: skip
_FIRST = since("sm_90")
_EIGHT_BIT = tuple(
    name
    for name in since("sm_100")
    if TARGETS[name].suffix == "a" or (TARGETS[name].suffix == "f" and TARGETS[name].number < 120)
)
_LATER = since("sm_100")


def _types(numbers: tuple[tuple[str, int], ...]) -> Iterator[tuple[str, int, tuple[str, ...], str]]:
    for type, count in numbers:
        eighth = type[0] == "e"
        yield type, count, _EIGHT_BIT if eighth else _FIRST, "8.6" if eighth else "8.1"


def _prefixes(family: str) -> Iterator[tuple[str, str, str, str]]:
    """(words, order, scope, space) of what stands before an operation."""
    for order, space in product(_ORDERS[family], _SPACES):
        for scope in _SCOPES if order in ("relaxed", "acquire", "release") else ("",):
            yield (
                "".join(f".{word}" for word in (order, scope) if word) + space,
                order or "relaxed",
                scope or "gpu",
                space,
            )


_REGISTERS = {1: ".b16", 2: ".b16", 4: ".b32", 8: ".b64"}


def _row(
    family: str, words: str, order: str, scope: str, space: str, end: str, type: str, count: int, targets: tuple[str, ...], version: str,
    reduction: Reduction | None = None, accumulator: str = "", documented: bool = True, pending: bool = False,
) -> MultimemRow:  # fmt: skip
    made = MultimemRow(
        f"{family}{words}{end}", family, arithmetic=reduction.operation if reduction else "store", type=type, count=count, reduction=reduction,
        accumulator=accumulator, semantics=order, scope=scope, pending=pending, documented=documented,
        modifiers=present(order=words.removesuffix(space), space=space, type=f".{type}"), targets=targets, ptx_version=version,
    )  # fmt: skip
    register = f".{type}" if type in ("f32", "f64") else _REGISTERS[made.register_bytes]
    kind: Any = "vector" if count > 1 else "register"
    reads = family == LOAD
    address = Operand(
        "address",
        "source" if reads else "both" if reduction else "destination",
        "address",
        space="global" if space else "generic",
    )
    value = Operand("d" if reads else "value", "destination" if reads else "source", kind, type=register, count=count)
    scope_of: Scope = "thread"
    form = Form(
        (value, address) if reads else (address, value), targets, version, together=scope_of, documented=documented
    )
    return replace(made, forms=(form,))


def _of_vector(type: str, count: int) -> str:
    return (f".v{count}" if count > 1 else "") + f".{type}"


def load_rows() -> tuple[MultimemRow, ...]:
    """Every multimem.ld_reduce."""
    return tuple(_loads())


def _loads() -> Iterator[MultimemRow]:
    for prefix in _prefixes(LOAD):
        for op, type in _INTEGERS:
            yield _row(LOAD, *prefix, f".{op}.{type}", type, 1, _FIRST, "8.1", Reduction(op, type))
        for type, count, targets, version in _types((*_HALVES, *_EIGHTHS, *_SINGLES)):
            element, inner = type.split("x")[0], "f16" if type[0] == "e" else "f32"
            wide = type[0] == "f" and element in ("f32", "f64")
            for op, accumulator in (("add", ""), *((("add", inner), ("min", ""), ("max", "")) if not wide else ())):
                end = f".{op}" + (f".acc::{accumulator}" if accumulator else "") + _of_vector(type, count)
                own = "8.2" if accumulator == "f32" else version
                yield _row(LOAD, *prefix, end, type, count, targets, own, Reduction(op, element), accumulator)


def store_rows() -> tuple[MultimemRow, ...]:
    """Every multimem.st."""
    plain = tuple((kind + bits, 1) for kind in "bus" for bits in ("32", "64"))
    return tuple(
        _row(STORE, *prefix, _of_vector(type, count), type, count, targets, version)
        for prefix in _prefixes(STORE)
        for type, count, targets, version in _types((*plain, *_HALVES, *_EIGHTHS, *_SINGLES))
    )


def reduce_rows() -> tuple[MultimemRow, ...]:
    """Every multimem.red; the manual lists vectors with .add alone."""
    return tuple(_reductions())


def _reductions() -> Iterator[MultimemRow]:
    for prefix in _prefixes(REDUCE):
        for op, type in _INTEGERS:
            yield _row(REDUCE, *prefix, f".{op}.{type}", type, 1, _FIRST, "8.1", Reduction(op, type))
        for type, count in (*_HALVES, *_SINGLES):
            element = type.split("x")[0]
            vector = element in ("f16", "bf16") and count > 1
            for op in ("add", *(("min", "max") if vector else ())):
                end = f".{op}" + _of_vector(type, count)
                yield _row(
                    REDUCE, *prefix, end, type, count, _FIRST, "8.1", Reduction(op, element), documented=op == "add"
                )


def async_store_rows() -> tuple[MultimemRow, ...]:
    """Every multimem.st.async."""
    types = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
    return tuple(
        _row(
            STORE_ASYNC,
            f".release.{scope}{space}",
            "release",
            scope,
            space,
            f".{type}",
            type,
            1,
            _LATER,
            "9.3",
            pending=True,
        )
        for scope, space, type in product(("gpu", "sys"), _SPACES, types)
    )


def async_reduce_rows() -> tuple[MultimemRow, ...]:
    """Every multimem.red.async."""
    return tuple(
        _row(
            REDUCE_ASYNC, f".release.{scope}{space}", "release", scope, space, f".add.{type}", type, 1, _LATER, "9.3", Reduction("add", type),
            pending=True,
        )
        for scope, space, type in product(("gpu", "sys"), _SPACES, ("u32", "s32", "u64"))
    )  # fmt: skip


def _bulk(
    family: str,
    end: str,
    targets: tuple[str, ...],
    version: str,
    reduction: Reduction | None = None,
    masked: bool = False,
) -> MultimemRow:
    operands = (
        Operand("destination", "both" if reduction else "destination", "address", space="global", proxy="async"),
        Operand("source", kind="address", space="shared::cta", proxy="async"),
        Operand("size"),
        *((Operand("byte_mask", type=".b16"),) if masked else ()),
    )
    form = Form(operands, targets, version, together="thread")
    return MultimemRow(
        f"{family}.global.shared::cta.bulk_group{end}", family, arithmetic=reduction.operation if reduction else "copy", forms=(form,),
        reduction=reduction, pending=True, type=reduction.type if reduction else "b8",
    )  # fmt: skip


def copy_rows() -> tuple[MultimemRow, ...]:
    """Every multimem.cp.async.bulk."""
    return (_bulk(COPY, "", _FIRST, "9.1"), _bulk(COPY, ".cp_mask", _LATER, "9.1", masked=True))


_BULK_OPERATIONS = (
    *_INTEGERS, ("inc", "u32"), ("dec", "u32"), ("add", "f32"), ("add", "f64"), *product(("add.noftz",), ("f16", "bf16", "f32")),
    *product(("min", "max"), ("f16", "bf16")),
)  # fmt: skip


def copy_reduce_rows() -> tuple[MultimemRow, ...]:
    """Every multimem.cp.reduce.async.bulk."""
    return tuple(
        _bulk(
            COPY_REDUCE,
            f".{op}.{type}",
            _FIRST,
            "9.4" if (op, type) == ("add.noftz", "f32") else "9.1",
            Reduction(op.removesuffix(".noftz"), type),
        )
        for op, type in _BULK_OPERATIONS
    )


def lowering(row: MultimemRow, arch: Arch) -> Lowering:
    """One machine instruction, whose name the assembler's output was not asked for in every type."""
    return Lowering("native", (), (), "one access to the multicast object")


_MANUAL = Evidence("literature", f"{PTX_MANUAL}, section multimem")


def evidence(row: MultimemRow, arch: Arch) -> Evidence:
    """The manual's word: nothing of it is measured."""
    return _MANUAL
