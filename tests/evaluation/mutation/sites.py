"""Where the model's source can be mutated: constants, comparisons, conditions, operators; by syntax, so that nothing is chosen."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

SHARE = {
    "tcsim/arithmetic": 14, "tcsim/numbers": 9, "tcsim/layouts": 7, "tcsim/descriptors": 8, "tcsim/memory": 6, "tcsim/tma": 8,
    "tcsim/isa": 5,
}  # fmt: skip
"""Mutants drawn of each module of a folder, by a hash of what they are: no one chooses them."""
MODULES = {
    "tcsim/arithmetic/dot": "units models_agree block_scale_numbers compiled_engine vectors wmma_probes",
    "tcsim/arithmetic/reduction": "effects_copies clusters async_copy",
    "tcsim/arithmetic/scaled_dot": "block_scale_numbers tcgen05_products",
    "tcsim/arithmetic/steps": "block_scale inspection_traces models_agree instruction sparse",
    "tcsim/arithmetic/units": "units models_agree block_scale_numbers tcgen05_products",
    "tcsim/descriptors/addresses": "warpgroup canonical_tile blackwell_descriptors",
    "tcsim/descriptors/bit_field": "instruction_descriptor mbarrier_bits effects_mbarrier",
    "tcsim/descriptors/matrix": "canonical_tile blackwell_descriptors",
    "tcsim/isa/cp_async_bulk/semantics": "async_copy effects_copies",
    "tcsim/isa/cvt/lowering": "cvt cvt_probes",
    "tcsim/isa/cvt/registers": "cvt",
    "tcsim/isa/cvt/semantics": "cvt inspection_numbers",
    "tcsim/isa/elect": "clusters effects_of_every_row",
    "tcsim/isa/mapa": "clusters cluster_probes",
    "tcsim/isa/mma/product": "models_agree block_scale_numbers compiled_engine",
    "tcsim/isa/mma/sparse_operand": "sparse sparse_metadata block_scale_numbers",
    "tcsim/isa/mma/sync": "registry instruction probes",
    "tcsim/isa/setmaxnreg": "clusters",
    "tcsim/isa/st_async": "clusters cluster_probes",
    "tcsim/isa/tensormap": "tensor_map effects_copies",
    "tcsim/isa/wgmma/multiply": "warpgroup wrong_arguments layouts",
    "tcsim/layouts/layout": "layout layout_algebra",
    "tcsim/layouts/sparsity": "sparse_metadata sparse_gemm",
    "tcsim/layouts/swizzle": "layout warpgroup",
    "tcsim/memory/mbarrier": "mbarrier effects_mbarrier",
    "tcsim/memory/mbarrier_bits": "mbarrier_bits",
    "tcsim/memory/mbarrier_object": "mbarrier_bits",
    "tcsim/numbers/codec": "encoding formats quantize",
    "tcsim/numbers/conversion": "cvt",
    "tcsim/numbers/formats": "formats exact_numbers encoding",
    "tcsim/numbers/ieee": "ieee exact_numbers",
    "tcsim/numbers/packing": "packing",
    "tcsim/numbers/rounding": "encoding ieee exact_numbers",
    "tcsim/tma/bits": "tensor_map_bits",
    "tcsim/tma/box": "tensor_copy",
    "tcsim/tma/copy": "tensor_copy tensor_rows",
    "tcsim/tma/fields": "tensor_map",
    "tcsim/tma/reduce": "tensor_copy effects_copies",
    "tcsim/tma/types": "tensor_map tensor_map_bits",
}
"""What computes: the modules that instructions run through, each with the tests that know it best. Rows, documents and what
Blackwell alone has are left out."""

BEHAVIOUR = {
    "tcsim/ptx/text": "ptx_reader ptx_constants",
    "tcsim/ptx/hazards": "severities ptx_notes check",
    "tcsim/ptx/compile": "fused_bits ptx_contraction ptx_meetings ptx_spaces ptx_calls ptx_scalars ptx_threads",
    "tcsim/ptx/machine": "state_of_the_machine joint_work ptx_spaces deadlocks ptx_inexact ptx_meetings ptx_copies ptx_barriers ptx_threads ptx_polling ptx_batches",
    "tcsim/ptx/check": "state_of_the_check severities wgmma_in_flight global_races tensor_maps planted late_waits",
    "tcsim/ptx/check/rules": "state_of_the_check severities wgmma_in_flight deadlocks cancel global_races tensor_maps planted late_waits",
    "tcsim/ptx/check/layout": "descriptor_origins bugs layouts",
    "tcsim/ptx/counters": "machine advice counting rules",
    "tcsim/ptx/launch": "state_of_the_machine ptx_api ptx_wrong_use ptx_threads ptx_sample ptx_batches",
    "tcsim/ptx/stepping": "ptx_stepping ptx_why",
    "tcsim/ptx": "ptx_api ptx_observer ptx_wrong_use ptx_why",
    "tcsim/diagnosis": "error_map diagnosis_some_tiles diagnosis_pipelines diagnosis_classes diagnosis_functions diagnosis_kept diagnose",
    "tcsim/explanation": "explain",
    "tcsim/engines": "engines loops compiled_engine",
    "tcsim/search": "search",
    "conformance/campaign": "forged_ledgers campaign",
    "conformance/vectors": "vectors forged_vectors",
}
"""What behaves: folders, all of whose modules are mutated, with the tests of the folder. No recordings of single instructions run through them."""
EACH = 3
"""Mutants drawn of each of their modules, if it has as many."""


@cache
def modules() -> dict[str, str]:
    """Every module that is mutated, with its tests."""
    found = dict(MODULES)
    for folder, tests in BEHAVIOUR.items():
        paths = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).glob("*.py")))
        found |= {path.removesuffix(".py"): tests for path in paths if sites(path)}
    return found


def behaves(path: str) -> bool:
    """Whether it is a module of `BEHAVIOUR`."""
    return path.rpartition("/")[0] in BEHAVIOUR


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
    scope: str  # the function, class or constant that it stands in
    was: str
    becomes: str
    number: int  # from 1, of the like changes in that scope

    @property
    def name(self) -> str:
        """Without line and place, which move with whatever stands above."""
        return f"{self.path}, {self.scope}: {self.was} -> {self.becomes} #{self.number}"

    @property
    def module(self) -> str:
        """As it is imported."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def sites(path: str) -> list[Site]:
    """Every mutant of a module."""
    tree = ast.parse((ROOT / path).read_text())
    left_out, scopes = _left_out(tree), _scopes(tree)
    found, alike = [], Counter[tuple[str, str, str]]()
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in left_out:
            continue
        changed = _changed(copy.deepcopy(node)) if not isinstance(node, ast.Module) else None
        if changed is not None:
            shown = (node.test, changed.test) if isinstance(node, ast.If) else (node, changed)  # type: ignore[attr-defined]
            was, becomes = (" ".join(ast.unparse(item).split())[:90] for item in shown)
            what = scopes[id(node)], was, becomes
            alike[what] += 1
            found.append(Site(path, node.lineno, place, *what, alike[what]))  # type: ignore[attr-defined]
    return found


def tests_of(path: str) -> list[str]:
    """The files of the tests that are named for a module, from the root of the tree."""
    return [file_of(name) for name in modules()[path.removesuffix(".py")].split()]


@cache
def file_of(name: str) -> str:
    """The one file `test_{name}.py` in any folder of tests. Raises LookupError where there is none, or there are two."""
    found = sorted((ROOT / "tests").rglob(f"test_{name}.py"))
    if len(found) != 1:
        raise LookupError(f"test_{name}.py is {len(found)} files of tests")
    return found[0].relative_to(ROOT).as_posix()


def chosen(known: Container[str] = ()) -> list[Site]:
    """The mutants that are run: of each module those whose names are known, then those with the least hashes."""

    def order(site: Site) -> tuple[bool, bytes]:
        return site.name not in known, hashlib.sha256(site.name.encode()).digest()

    found: list[Site] = []
    for module in modules():
        core = (number for folder, number in SHARE.items() if module.startswith(f"{folder}/"))
        share = EACH if behaves(module) else next(core)
        found += sorted(sites(f"{module}.py"), key=order)[:share]
    return sorted(found, key=order)


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


def _scopes(tree: ast.Module) -> dict[int, str]:
    """What each node stands in, dotted: definitions, and constants outside functions."""
    scopes: dict[int, str] = {}

    def enter(node: ast.AST, scope: str, in_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inner, function = scope, in_function
            match child:
                case ast.FunctionDef(name=name):
                    inner, function = f"{scope}.{name}", True
                case ast.ClassDef(name=name):
                    inner = f"{scope}.{name}"
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if (
                    not in_function
                ):
                    inner = f"{scope}.{name}"
            scopes[id(child)] = inner.removeprefix(".")
            enter(child, inner, function)

    enter(tree, "", False)
    return scopes


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
