"""Recorded code as LLVM's assembly: each operation on `WIDTH` threads at once, in vectors, so that the same bits come out of every lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.lowering.traced import Node, Untraceable

WIDTH = 16
"""Threads of one step; blocks have a multiple of 32."""
_ORDERS = ("lt", "le", "gt", "ge")
_COMPARED = {
    "b": {"eq": "eq", "ne": "ne"},
    "u": {"eq": "eq", "ne": "ne", **{own: f"u{own}" for own in _ORDERS}},
    "i": {"eq": "eq", "ne": "ne", **{own: f"s{own}" for own in _ORDERS}},
    "f": {"eq": "oeq", "ne": "une", **{own: f"o{own}" for own in _ORDERS}},
}
"""LLVM's names of comparisons, by what is compared: NaN is not equal to anything."""


def element(type: str) -> str:
    """LLVM's type of one value; of f16, which is only converted, its bits."""
    return {"b1": "i1", "f2": "i16", "f4": "float", "f8": "double"}.get(type) or f"i{8 * int(type[1:])}"


def vector(type: str) -> str:
    """LLVM's type of values of all lanes."""
    return f"<{WIDTH} x {element(type)}>"


def literal(type: str, bits: int) -> str:
    """A known value in all lanes; of floating-point numbers their bits."""
    one = f"{element(type)} {bits & 1}" if type[0] == "b" else f"i{8 * int(type[1:])} {bits}"
    return f"<{', '.join([one] * WIDTH)}>"


@dataclass(eq=False)
class Function:
    """Code that several places call: parameters and results by their types, and what the results are."""

    name: str
    params: tuple[str, ...]
    results: tuple[Node, ...]


@dataclass(eq=False)
class Unit:
    """What is compiled together: functions, declarations, and the tables that they read."""

    functions: dict[int, str] = field(default_factory=dict)  # text, by the function's id
    kept: list[Function] = field(default_factory=list)
    declared: dict[str, str] = field(default_factory=dict)
    tables: list[npt.NDArray[Any]] = field(default_factory=list)

    def table(self, rows: npt.NDArray[Any]) -> int:
        """The number of a table."""
        for number, own in enumerate(self.tables):
            if own is rows or (own.shape == rows.shape and own.dtype == rows.dtype and np.array_equal(own, rows)):
                return number
        self.tables.append(rows)
        return len(self.tables) - 1

    def intrinsic(self, name: str, result: str, *params: str) -> str:
        """The name of one of LLVM's own functions of vectors, declared."""
        whole = f"llvm.{name}"
        self.declared[whole] = f"declare {result} @{whole}({', '.join(params)})"
        return f"@{whole}"

    def function(self, own: Function) -> str:
        """The name of a function, defined."""
        if id(own) not in self.functions:
            self.functions[id(own)] = ""
            self.kept.append(own)
            body = Body(self)
            for node in _params(own.results):
                body.names[id(node)] = f"%a{node.extra}"
            names = [body.value(node) for node in own.results]
            types = [vector(node.type) for node in own.results]
            whole = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
            given = ", ".join(f"{vector(type)} %a{place}" for place, type in enumerate(own.params))
            last = names[0]
            if len(names) > 1:
                last = "poison"
                for place, (name, type) in enumerate(zip(names, types, strict=True)):
                    last = body.line(f"insertvalue {whole} {last}, {type} {name}, {place}")
            lines = [*body.lines, f"  ret {whole} {last}"]
            comma = ", " if given else ""
            self.functions[id(own)] = "\n".join(
                [f"define internal {whole} @{own.name}(ptr %tables{comma}{given}) noinline {{", *lines, "}"]
            )
        return f"@{own.name}"

    @property
    def text(self) -> str:
        """All that was defined and declared."""
        return "\n".join([*self.functions.values(), *self.declared.values()])


def _params(results: Sequence[Node]) -> list[Node]:
    found, seen, left = [], set(), list(results)
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        left += node.args
        if node.op == "param":
            found.append(node)
    return found


@dataclass(eq=False)
class Body:
    """The lines of one function."""

    unit: Unit
    lines: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # of nodes
    known: dict[tuple[Any, ...], str] = field(default_factory=dict)  # what was computed before
    count: int = 0
    registers: set[int] = field(default_factory=set)  # of which values are read or written

    def line(self, source: str) -> str:
        """A value computed; its name. What was computed before is not again."""
        found = self.known.get((source,))
        if found is None:
            found = self.known[source,] = f"%v{self.count}"
            self.count += 1
            self.lines.append(f"  {found} = {source}")
        return found

    def value(self, node: Node) -> str:
        """The name of a node's value, computed with all that it needs."""
        left = [node]
        while left:
            own = left[-1]
            if id(own) in self.names:
                left.pop()
                continue
            missing = [arg for arg in own.args if id(arg) not in self.names]
            if missing:
                left += missing
                continue
            self.names[id(own)] = self._emit(own, [self.names[id(arg)] for arg in own.args])
            left.pop()
        return self.names[id(node)]

    # --- operations

    def _emit(self, node: Node, args: list[str]) -> str:
        way: Callable[..., str] | None = getattr(self, f"_{node.op}", None)
        if way is not None:
            return way(node, *args)
        kind = node.type[0]
        if node.op in _BINARY:
            name = _BINARY[node.op].get(kind)
            if name is None:
                raise Untraceable(f"{node.op} of {node.type}")
            return self.line(f"{name} {vector(node.type)} {args[0]}, {args[1]}")
        if node.op in _COMPARED["u"]:
            of = node.args[0].type
            name = _COMPARED[of[0]].get(node.op)
            if name is None or of == "f2":
                raise Untraceable(f"{node.op} of {of}")
            return self.line(f"{'f' if of[0] == 'f' else 'i'}cmp {name} {vector(of)} {args[0]}, {args[1]}")
        if node.op in _INTRINSICS and kind == "f":
            return self.call(_INTRINSICS[node.op], node.type, *args)
        raise Untraceable(f"{node.op} of {node.type}")

    def call(self, name: str, type: str, *args: str, more: str = "") -> str:
        """One of LLVM's functions, whose parameters and result have one type."""
        own = vector(type)
        full = f"{name}.v{WIDTH}{_SUFFIX.get(type) or 'i' + str(8 * int(type[1:]))}"
        called = self.unit.intrinsic(full, own, *[own] * len(args), *(["i1"] if more else []))
        given = ", ".join(f"{own} {arg}" for arg in args)
        return self.line(f"call {own} {called}({given}{more})")

    def constant(self, type: str, bits: int) -> str:
        """A known value."""
        text = literal(type, bits)
        if type in ("f4", "f8"):
            return f"bitcast (<{WIDTH} x i{8 * int(type[1:])}> {text} to {vector(type)})"
        return text

    def _const(self, node: Node) -> str:
        return self.constant(node.type, node.extra)

    def _param(self, node: Node) -> str:
        raise Untraceable("a parameter of another function")

    def _register(self, node: Node) -> str:
        """The register that a number names, at the threads of this step."""
        self.registers.add(node.extra)
        return self.loaded(node.type, node.extra)

    def loaded(self, type: str, number: int) -> str:
        """What a register holds; of a predicate a byte."""
        own = "u1" if type == "b1" else type
        place = self.line(f"getelementptr {element(own)}, ptr %r{number}, i64 %s")
        found = self.line(f"load {vector(own)}, ptr {place}, align 1")
        return self.two("icmp ne", "u1", found, self.constant("u1", 0)) if type == "b1" else found

    def stored(self, type: str, number: int, value: str) -> None:
        """Put a value into a register, of the threads that execute."""
        own = "u1" if type == "b1" else type
        self.registers.add(number)
        kept = self.pick("%m", type, value, self.loaded(type, number))
        place = self.line(f"getelementptr {element(own)}, ptr %r{number}, i64 %s")
        kept = self.recast("zext", "b1", "u1", kept) if type == "b1" else kept
        self.lines.append(f"  store {vector(own)} {kept}, ptr {place}, align 1")

    def _bits(self, node: Node, arg: str) -> str:
        own, to = element(node.args[0].type), element(node.type)
        if own == to:
            return arg
        if "i1" in (own, to):
            return self._converted(arg, node.args[0].type, node.type)
        return self.line(f"bitcast {vector(node.args[0].type)} {arg} to {vector(node.type)}")

    def _cast(self, node: Node, arg: str) -> str:
        return self._converted(arg, node.args[0].type, node.type)

    def _converted(self, arg: str, own: str, to: str) -> str:
        if own == "f2":
            wide = self._from_half(arg)
            return wide if to == "f4" else self._converted(wide, "f4", to)
        if to == "f2":
            return self._to_half(arg if own == "f8" else self._converted(arg, own, "f8"))
        one, other, small = own[0], to[0], int(to[1:]) < int(own[1:])
        if other == "b":
            word, kind = ("fcmp une", "f") if one == "f" else ("icmp ne", "i")
            return arg if one == "b" else self.line(f"{word} {vector(own)} {arg}, {self.constant(own, 0)}")
        if one == "f" and other != "f":
            name = f"fpto{'s' if other == 'i' else 'u'}i.sat.v{WIDTH}i{8 * int(to[1:])}.v{WIDTH}{_SUFFIX[own]}"
            called = self.unit.intrinsic(name, vector(to), vector(own))
            return self.line(f"call {vector(to)} {called}({vector(own)} {arg})")
        if own[1:] == to[1:] and one != "b" and other != "f":
            return arg
        if one == "f":
            word = "fptrunc" if small else "fpext"
        elif other == "f":
            word = "sitofp" if one == "i" else "uitofp"
        else:
            word = "zext" if one == "b" else "trunc" if small else "sext" if one == "i" else "zext"
        return self.line(f"{word} {vector(own)} {arg} to {vector(to)}")

    def two(self, word: str, type: str, one: str, other: str) -> str:
        """An operation on two values of a type."""
        return self.line(f"{word} {vector(type)} {one}, {other}")

    def pick(self, condition: str, type: str, one: str, other: str) -> str:
        """One value or the other, in each lane."""
        return self.line(f"select {vector('b1')} {condition}, {vector(type)} {one}, {vector(type)} {other}")

    def recast(self, word: str, own: str, to: str, arg: str) -> str:
        """A value as another type."""
        return self.line(f"{word} {vector(own)} {arg} to {vector(to)}")

    def _from_half(self, arg: str) -> str:
        """f16 to f32: the bits moved up are too small by a power of two, whatever they are but infinity and NaN."""
        wide = self.recast("zext", "u2", "u4", arg)
        magnitude = self.two("and", "u4", wide, self.constant("u4", 0x7FFF))
        moved = self.two("shl", "u4", magnitude, self.constant("u4", 13))
        scaled = self.two("fmul", "f4", self.recast("bitcast", "u4", "f4", moved), self.constant("f4", 127 + 112 << 23))
        above = self.two("icmp uge", "u4", magnitude, self.constant("u4", 0x7C00))
        special = self.two("or", "u4", moved, self.constant("u4", 0x7F800000))
        chosen = self.pick(above, "u4", special, self.recast("bitcast", "f4", "u4", scaled))
        sign = self.two("and", "u4", wide, self.constant("u4", 0x8000))
        high = self.two("shl", "u4", sign, self.constant("u4", 16))
        return self.recast("bitcast", "u4", "f4", self.two("or", "u4", chosen, high))

    def _to_half(self, arg: str) -> str:
        """f64 to f16, to the nearest, ties to even: of subnormal numbers by a sum whose last place is theirs."""
        two, fixed = self.two, partial(self.constant, "u8")
        bits = self.recast("bitcast", "f8", "u8", arg)
        size = two("and", "u8", bits, fixed((1 << 63) - 1))
        last = two("and", "u8", two("lshr", "u8", size, fixed(42)), fixed(1))
        half = two("add", "u8", two("add", "u8", size, fixed((1 << 41) - 1)), last)
        code = two("sub", "u8", two("lshr", "u8", half, fixed(42)), fixed(1023 - 15 << 10))
        summed = two("fadd", "f8", self.recast("bitcast", "u8", "f8", size), self.constant("f8", 1023 + 28 << 52))
        below = two("sub", "u8", self.recast("bitcast", "f8", "u8", summed), fixed(1023 + 28 << 52))
        code = self.pick(two("icmp ult", "u8", size, fixed(1023 - 14 << 52)), "u8", below, code)
        code = self.pick(two("icmp uge", "u8", size, fixed(_TOO_LARGE)), "u8", fixed(0x7C00), code)
        code = self.pick(two("icmp ugt", "u8", size, fixed(0x7FF << 52)), "u8", fixed(0x7E00), code)
        sign = two("and", "u8", two("lshr", "u8", bits, fixed(48)), fixed(0x8000))
        return self.recast("trunc", "u8", "u2", two("or", "u8", code, sign))

    def _not(self, node: Node, arg: str) -> str:
        return self.line(f"xor {vector(node.type)} {arg}, {literal(node.type, (1 << 8 * int(node.type[1:])) - 1)}")

    def _neg(self, node: Node, arg: str) -> str:
        if node.type[0] == "f":
            return self.line(f"fneg {vector(node.type)} {arg}")
        return self.line(f"sub {vector(node.type)} {self.constant(node.type, 0)}, {arg}")

    def _abs(self, node: Node, arg: str) -> str:
        if node.type[0] == "f":
            return self.call("fabs", node.type, arg)
        return self.call("abs", node.type, arg, more=", i1 0") if node.type[0] == "i" else arg

    def _mul(self, node: Node, one: str, other: str) -> str:
        """A product; of two 16-bit integers in 32 bits, because LLVM 22 takes a shift of it by 32 and more for nothing known on x86-64."""
        given = {arg.args[0].type if arg.op == "cast" else "" for arg in node.args}
        narrow = node.type[:1] + "4"
        if (
            node.type in ("i8", "u8")
            and given <= {"u1", "u2"} | ({"i1", "i2"} if node.type == "i8" else set())
            and len(given) == 1
        ):
            parts = (self._converted(self.names[id(arg.args[0])], arg.args[0].type, narrow) for arg in node.args)
            return self._converted(self.two("mul", narrow, *parts), narrow, node.type)
        name = _BINARY["mul"].get(node.type[0], "")
        return self.two(name, node.type, one, other)

    def _min(self, node: Node, one: str, other: str) -> str:
        return self._extreme(node, "min", one, other)

    def _max(self, node: Node, one: str, other: str) -> str:
        return self._extreme(node, "max", one, other)

    def _extreme(self, node: Node, name: str, one: str, other: str) -> str:
        if node.type[0] not in "ui":
            raise Untraceable(f"{name} of {node.type}")
        return self.call(f"{'s' if node.type[0] == 'i' else 'u'}{name}", node.type, one, other)

    def _shl(self, node: Node, value: str, count: str) -> str:
        return self._shift(node, "shl", value, count)

    def _shr(self, node: Node, value: str, count: str) -> str:
        return self._shift(node, "ashr" if node.type[0] == "i" else "lshr", value, count)

    def _shift(self, node: Node, word: str, value: str, count: str) -> str:
        """As NumPy shifts: by the width and more, no bit is left but the sign's."""
        own, bits = vector(node.type), 8 * int(node.type[1:])
        if node.args[1].op == "const":
            known = node.args[1].extra
            if known >= bits:
                if word != "ashr":
                    return self.constant(node.type, 0)
                count = self.constant(node.type, bits - 1)
            return self.line(f"{word} {own} {value}, {count}")
        if word == "ashr":
            return self.line(
                f"ashr {own} {value}, {self.call('umin', node.type, count, self.constant(node.type, bits - 1))}"
            )
        moved = self.line(f"{word} {own} {value}, {count}")
        inside = self.line(f"icmp ult {own} {count}, {self.constant(node.type, bits)}")
        return self.line(f"select {vector('b1')} {inside}, {own} {moved}, {own} {self.constant(node.type, 0)}")

    def _floordiv(self, node: Node, value: str, by: str) -> str:
        """As NumPy divides integers: down, and 0 by 0."""
        type, bits, two = node.type, 8 * int(node.type[1:]), self.two
        zero, one = self.constant(type, 0), self.constant(type, 1)
        if type[0] == "f":
            raise Untraceable("quotients that are rounded down")
        nothing = unsafe = two("icmp eq", type, by, zero)
        if type[0] == "i":
            least = two("icmp eq", type, value, self.constant(type, 1 << bits - 1))
            minus = two("icmp eq", type, by, self.constant(type, (1 << bits) - 1))
            unsafe = two("or", "b1", nothing, two("and", "b1", least, minus))
        safe = self.pick(unsafe, type, one, by)
        quotient = two("sdiv" if type[0] == "i" else "udiv", type, value, safe)
        if type[0] == "i":
            rest = two("sub", type, value, two("mul", type, quotient, safe))
            signs = two("icmp slt", type, two("xor", type, rest, safe), zero)
            down = two("and", "b1", two("icmp ne", type, rest, zero), signs)
            quotient = self.pick(down, type, two("sub", type, quotient, one), quotient)
        return self.pick(nothing, type, zero, quotient)

    def _select(self, node: Node, condition: str, one: str, other: str) -> str:
        return self.pick(condition, node.type, one, other)

    def _popcount(self, node: Node, arg: str) -> str:
        return self.call("ctpop", node.type, arg)

    def _call(self, node: Node, *args: str) -> str:
        own, place = node.extra
        name = self.unit.function(own)
        types = [vector(result.type) for result in own.results]
        whole = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
        given = "".join(f", {vector(type)} {arg}" for type, arg in zip(own.params, args, strict=True))
        found = self.line(f"call {whole} {name}(ptr %tables{given})")
        return found if len(types) == 1 else self.line(f"extractvalue {whole} {found}, {place}")

    def _entry(self, node: Node, index: str) -> str:
        """An entry of a table, lane by lane; what lies outside is not looked at."""
        (rows, column), own = node.extra, vector(node.type)
        place = self.line(f"getelementptr ptr, ptr %tables, i64 {self.unit.table(rows)}")
        table = self.line(f"load ptr, ptr {place}")
        inside = self.call("umin", "u8", index, self.constant("u8", len(rows) - 1))
        key = ("entries", table, inside, column, node.type)
        if key not in self.known:
            found, width = "poison", rows.shape[1]
            step = inside if width == 1 else self.line(f"mul {vector('u8')} {inside}, {self.constant('u8', width)}")
            for lane in range(WIDTH):
                at = self.line(f"extractelement {vector('u8')} {step}, i32 {lane}")
                there = self.line(f"getelementptr {element(node.type)}, ptr {table}, i64 {at}")
                if column:
                    there = self.line(f"getelementptr {element(node.type)}, ptr {there}, i64 {column}")
                one = self.line(f"load {element(node.type)}, ptr {there}")
                found = self.line(f"insertelement {own} {found}, {element(node.type)} {one}, i32 {lane}")
            self.known[key] = found
        return self.known[key]


_TOO_LARGE = 0x40EFFE0000000000
"""65,520 as f64: from here on f16 has infinity."""
_SUFFIX = {"f4": "f32", "f8": "f64"}
_BINARY: dict[str, dict[str, str]] = {
    "add": {"u": "add", "i": "add", "f": "fadd", "b": "or"}, "sub": {"u": "sub", "i": "sub", "f": "fsub"},
    "mul": {"u": "mul", "i": "mul", "f": "fmul", "b": "and"}, "div": {"f": "fdiv"},
    "and": dict.fromkeys("bui", "and"), "or": dict.fromkeys("bui", "or"), "xor": dict.fromkeys("bui", "xor"),
}  # fmt: skip
"""LLVM's operations on two values, by what they are."""
_INTRINSICS = {
    "sqrt": "sqrt",
    "rint": "rint",
    "trunc": "trunc",
    "floor": "floor",
    "ceil": "ceil",
    "copysign": "copysign",
    "fma": "fma",
}
