"""Where the model's source can be mutated: constants, comparisons, conditions, operators; by syntax, so that nothing is chosen."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SHARE = {
    "tcsim/arithmetic": 14, "tcsim/numbers": 9, "tcsim/layouts": 7, "tcsim/descriptors": 8, "tcsim/memory": 6, "tcsim/tma": 8,
    "tcsim/isa": 5,
}  # fmt: skip
"""Mutants drawn of each module of a folder, by a hash of what they are: no one chooses them."""
MODULES = {
    "tcsim/arithmetic": ("dot", "steps", "units", "reduction", "scaled_dot"),
    "tcsim/numbers": ("codec", "conversion", "formats", "ieee", "packing", "rounding"),
    "tcsim/layouts": ("layout", "swizzle", "sparsity"),
    "tcsim/descriptors": ("matrix", "addresses", "bit_field"),
    "tcsim/memory": ("mbarrier", "mbarrier_bits", "mbarrier_object"),
    "tcsim/tma": ("bits", "box", "copy", "fields", "reduce", "types"),
    "tcsim/isa": (
        "mma/sync", "mma/sparse_operand", "mma/product", "wgmma/multiply", "cvt/lowering", "cvt/semantics", "cvt/registers",
        "cp_async_bulk/semantics", "elect", "mapa", "setmaxnreg", "st_async", "tensormap",
    ),
}  # fmt: skip
"""What computes: the modules that instructions run through. Rows, documents and what Blackwell alone has are left out."""

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    """One change of one node."""

    path: str  # of the module, from the root of the tree
    line: int
    place: int  # of the node in `ast.walk`
    was: str
    becomes: str

    @property
    def name(self) -> str:
        """Without the line, which moves."""
        return f"{self.path}: {self.was} -> {self.becomes} #{self.place}"

    @property
    def module(self) -> str:
        """As it is imported."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def sites(path: str) -> list[Site]:
    """Every mutant of a module."""
    tree = ast.parse((ROOT / path).read_text())
    left_out = _left_out(tree)
    found = []
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in left_out:
            continue
        changed = _changed(copy.deepcopy(node)) if not isinstance(node, ast.Module) else None
        if changed is not None:
            shown = (node.test, changed.test) if isinstance(node, ast.If) else (node, changed)  # type: ignore[attr-defined]
            was, becomes = (" ".join(ast.unparse(item).split())[:90] for item in shown)
            found.append(Site(path, node.lineno, place, was, becomes))  # type: ignore[attr-defined]
    return found


def chosen() -> list[Site]:
    """The mutants that are run: of each module those with the least hashes."""
    found: list[Site] = []
    for folder, names in MODULES.items():
        for name in names:
            found += sorted(sites(f"{folder}/{name}.py"), key=_hash)[: SHARE[folder]]
    return sorted(found, key=_hash)


def _hash(site: Site) -> bytes:
    return hashlib.sha256(site.name.encode()).digest()


def mutated(site: Site) -> str:
    """The source of the module with the change."""
    tree = ast.parse((ROOT / site.path).read_text())
    for place, node in enumerate(ast.walk(tree)):
        if place == site.place:
            changed = _changed(node)
            if changed is None:
                raise ValueError(f"{site.name} is not a mutant of this source")
            return ast.unparse(_Replaced(node, changed).visit(tree))
    raise ValueError(f"{site.name} is not in this source")


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _changed(node: ast.AST) -> ast.AST | None:
    """Another node in its place, or None: it may be `node`, changed."""
    match node:
        case ast.Constant(value=bool()):
            return ast.copy_location(ast.Constant(not node.value), node)
        case ast.Constant(value=int()):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        case ast.Compare(ops=[op], comparators=[other]) if type(op) in _COMPARED:
            new = ast.Compare(node.left, [_COMPARED[type(op)]()], [other])
            return ast.copy_location(new, node)
        case ast.BoolOp():
            new_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            return ast.copy_location(ast.BoolOp(new_op, node.values), node)
        case ast.If() | ast.IfExp():
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
            return node
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return ast.copy_location(ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right), node)
    return None


def _left_out(tree: ast.Module) -> set[int]:
    """Nodes of what computes nothing: annotations, messages, refusals, documentation, and decorators."""
    out: set[int] = set()

    def leave(*nodes: ast.AST | None) -> None:
        for top in nodes:
            if top is not None:
                out.update(id(node) for node in ast.walk(top))

    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef():
                leave(node.returns, *node.decorator_list, *(item.annotation for item in _arguments(node)))
            case ast.ClassDef():
                leave(*node.decorator_list)
            case ast.AnnAssign():
                leave(node.annotation)
            case ast.Raise() | ast.Assert() | ast.JoinedStr():
                leave(node)
            case ast.If(body=[ast.Raise()], orelse=[]):
                leave(node)
            case ast.Assign(value=ast.Subscript(value=ast.Name(id="Literal" | "dict" | "tuple" | "Callable"))):
                leave(node)
            case ast.keyword(arg="compare" | "repr" | "eq" | "kw_only" | "slots" | "frozen" | "strict"):
                leave(node)
    return out


def _arguments(node: ast.FunctionDef) -> Iterator[ast.arg]:
    yield from (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
