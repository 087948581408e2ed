"""Which functions a kernel may call, and one program of them all.

Every function has registers of its own and a place for its local variables. A function that can be active more than once for a
thread, because it calls itself or takes memory with alloca, is *framed*: entering it saves its registers, and its local
variables lie on the thread's stack. Arguments and results pass through two places at the beginning of local memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tcsim.model.statement import leaves
from tcsim.ptx.compile.calls import Signature
from tcsim.ptx.compile.compiled import NAMES, Compiled, Context, offsets
from tcsim.ptx.compile.contraction import handed_over
from tcsim.ptx.compile.guarded import branched
from tcsim.ptx.compile.ordinary import ordinary
from tcsim.ptx.compile.program import Compiler
from tcsim.ptx.text.syntax import Function, Group, Instruction, Module, Operand, Symbol, Variable

FUNCTION_ADDRESSES = 0x00F4_0000_0000_0000
"""Where the addresses of functions begin: 16 bytes for each, in the order of the module. Nothing is mapped there."""


def function_addresses(module: Module) -> dict[str, int]:
    """The address of each function, entries and declarations included; an alias has that of its function."""
    found = {name: FUNCTION_ADDRESSES + 16 * (number + 1) for number, name in enumerate(module.functions)}
    return found | {name: found[target] for name, target in module.aliases.items() if target in found}


def resolved(module: Module, name: str) -> str:
    """The function behind a name that may be an alias."""
    return module.aliases.get(name, name)


@dataclass(frozen=True)
class Reach:
    """The functions of a program."""

    order: tuple[Function, ...]  # callees before callers where that is possible; the entry is the last
    framed: frozenset[str]
    taken: tuple[str, ...]  # functions whose address is taken


def reach(module: Module, entry: Function) -> Reach:
    """The functions that an entry may call, directly or through an address. No function is visited twice, none recursively."""
    taken = tuple(dict.fromkeys(_taken(module)))
    edges: dict[str, tuple[str, ...]] = {}
    pending = [entry]
    while pending:
        function = pending.pop()
        if function.name in edges:
            continue
        edges[function.name] = tuple(dict.fromkeys(_callees(module, function, taken)))
        pending += [module.functions[name] for name in edges[function.name] if module.functions[name].defined]
    groups = _components(edges, entry.name)
    order = [name for group in groups for name in group if module.functions[name].defined]
    framed = {name for group in groups for name in group if len(group) > 1 or name in edges.get(name, ())}
    framed |= {name for name in order if any(ordinary(item.opcode).frames for item in module.functions[name].body)}
    defined = tuple(module.functions[name] for name in order)
    return Reach(defined, frozenset(framed - {entry.name}), taken)


def _taken(module: Module) -> Iterator[str]:
    """Functions whose address stands in an initial value or an instruction other than a direct call."""
    for variable in module.variables.values():
        for place in variable.initial.addresses if variable.initial else ():
            if resolved(module, place.symbol) in module.functions:
                yield resolved(module, place.symbol)
    for function in module.functions.values():
        for item in function.body:
            called = callee(item) if _calls(item) else None
            for name in symbols_of(item.operands):
                if name != called and resolved(module, name) in module.functions and name not in function.variables:
                    yield resolved(module, name)


def symbols_of(operands: tuple[Operand, ...]) -> Iterator[str]:
    """The names of variables, functions and labels in operands."""
    return (own.name for own in leaves(operands) if isinstance(own, Symbol))


def _calls(item: Instruction) -> bool:
    return ordinary(item.opcode).control == "call"


def callee(item: Instruction) -> str | None:
    """The function that a call names; None if it goes through a register."""
    places = [operand for operand in item.operands if not isinstance(operand, Group)]
    return places[0].name if places and isinstance(places[0], Symbol) else None


def _callees(module: Module, function: Function, taken: tuple[str, ...]) -> Iterator[str]:
    for item in function.body:
        if not _calls(item):
            continue
        name = callee(item)
        if name is None:
            yield from taken
        elif resolved(module, name) in module.functions:
            yield resolved(module, name)


def _components(edges: dict[str, tuple[str, ...]], root: str) -> list[list[str]]:
    """Functions that call each other, callees first (Tarjan's algorithm with a stack of its own)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    work: list[tuple[str, Iterator[str]]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        work.append((name, iter(edges.get(name, ()))))

    visit(root)
    while work:
        name, following = work[-1]
        child = next(following, None)
        if child is not None:
            if child not in index:
                visit(child)
            elif child in on_stack:
                low[name] = min(low[name], index[child])
            continue
        work.pop()
        if work:
            low[work[-1][0]] = min(low[work[-1][0]], low[name])
        if low[name] == index[name]:
            group: list[str] = []
            while not group or group[-1] != name:
                group.append(stack.pop())
                on_stack.discard(group[-1])
            found.append(group[::-1])
    return found


def link(
    module: Module, entry: Function, addresses: dict[str, int], shared: dict[str, dict[str, int]],
    arch: str, watched: bool = False, stepped: bool = False, traced: bool = False,
) -> Compiled:  # fmt: skip
    """One program of an entry and all that it may call.

    addresses: of global variables and functions. shared: of each function, the offsets of shared variables that it sees. watched:
    for an observer. stepped: it tells its machine of every instruction. traced: registers say where their elements come from.
    Raises PtxError, with the place, for an instruction whose operands do not fit.
    """
    found = reach(module, entry)
    signatures = [own for function in found.order for own in _signatures(module, function)]
    context = Context(module, addresses, found.framed, arch, watched, stepped, traced)
    context.results = _room(params for _, params in signatures)
    context.local_bytes = context.results + _room(returned for returned, _ in signatures)
    functions = [branched(function) for function in found.order]
    context.optimized = "debug" not in module.target_options
    context.handed = handed_over(functions) if context.optimized else frozenset()
    compilers = [Compiler(function, context, shared[function.name]) for function in functions]
    for compiler in compilers:
        compiler.partition()
    blocks = [block for compiler in compilers for block in compiler.generate()]
    writers = [compiler.writer for compiler in compilers]
    names = {f"k{index}": value for index, value in enumerate(context.constants)} | NAMES
    program = Compiled(
        entry,
        context.registers,
        writers[-1].block_of[0],
        {addresses[name]: block for name, block in context.enters.items() if name in addresses},
        context.local_bytes,
        names,
        waits=any(writer.waits for writer in writers),
        tells_order=any(writer.tells_order for writer in writers),
        competes=any(writer.competes for writer in writers),
        async_proxy=any(writer.async_proxy for writer in writers),
        carried=context.carried,
        traced=traced,
        plain=not stepped and not traced,
        watched=watched,
        narrowest=min(writer.narrowest for writer in writers),
        narrowest_global=min(writer.narrowest_global for writer in writers),
    )
    program.add(blocks)
    return program


def _room(lists: Iterable[Sequence[Variable]]) -> int:
    """The bytes that the largest of some lists of arguments or results needs."""
    return -(-max((offsets(variables)[1] for variables in lists), default=0) // 16) * 16


def _signatures(module: Module, function: Function) -> Iterator[Signature]:
    """The results and parameters of what a function calls, and its own."""
    if not function.entry:
        yield function.returns, function.params
    yield from function.prototypes.values()
    for item in function.body:
        name = callee(item) if _calls(item) else None
        called = module.functions.get(resolved(module, name)) if name else None
        if called is not None:
            yield called.returns, called.params
