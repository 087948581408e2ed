"""The body of a function: blocks with registers, labels and variables of their own, and the instructions in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tcsim.core.errors import listing, shortened
from tcsim.isa.ordinary.special_registers import since
from tcsim.model.statement import Instruction, Location, Operand, Pair, Register, Special, Symbol, Vector, leaves
from tcsim.ptx.text.fitting import misplaced
from tcsim.ptx.text.operands import CONSTANTS, read_operand, split
from tcsim.ptx.text.scanner import DECLARED, NAME, NUMBERS, PRAGMA, SINCE, SPACES, WORD, Scanner, parameters
from tcsim.ptx.text.spellings import known, refusal, unmodelled
from tcsim.ptx.text.syntax import Function, Module, PtxError, rebuilt

AXES = (".x", ".y", ".z", ".w")
DIRECTIVES = ("reg", *SPACES, "loc", "pragma", "branchtargets", "calltargets", "callprototype")
MOST_REGISTERS = 1 << 20  # of one declaration
LABEL = re.compile(rf"({NAME})\s*:(?!:)", re.ASCII)
INSTRUCTION = re.compile(rf"(?:@(!?)\s*({NAME})\s+)?([a-z]\w*+(?:\s*+(?:\.|::)\w++(?::\d++)?)*+)\s*+([^;]*);", re.ASCII)
LOC = re.compile(
    rf"\.loc\s+(\d{{1,9}})\s+(\d{{1,9}})(?:\s+(\d{{1,9}}))?"
    rf"(?:\s*,\s*function_name\s+{NAME}(?:\s*\+\s*\d+)?\s*,\s*inlined_at\s+(\d{{1,9}})\s+(\d{{1,9}})\s+(\d{{1,9}}))?",
    re.ASCII,
)
REGISTERS = re.compile(rf"({NAME})(?:<\s*(\d{{1,10}})\s*>)?", re.ASCII)
TARGETS = re.compile(r"\.(branchtargets|calltargets)\s+([^;]*);")


@dataclass
class Scope:
    """A block in braces: what is declared in it, and where it stands."""

    number: int
    parent: Scope | None
    function: BodyReader
    names: dict[str, str] = field(default_factory=dict)  # of registers: unique names
    families: dict[str, tuple[str, int]] = field(default_factory=dict)  # %r<100>: by prefix the type and the count
    symbols: dict[str, str] = field(default_factory=dict)  # of labels and variables: unique names
    declared: set[str] = field(default_factory=set)  # what this block declares one by one: registers, labels, variables
    operands: dict[str, tuple[tuple[Operand, ...], bool]] = field(default_factory=dict)  # lists that were read already
    parts: dict[str, Operand] = field(default_factory=dict)  # operands that were

    def unique(self, name: str) -> str:
        """The name of something declared here: as it is in the outermost block of a function, with the block's number elsewhere."""
        return name if self.parent is None else f"{name}#{self.number}"

    def family(self, name: str) -> str:
        """The type of a register that a list of this block declares, %r<100>; "" if none does."""
        prefix = name.rstrip("0123456789")
        type, count = self.families.get(prefix, ("", 0))
        index = name[len(prefix) :]
        return type if _below(index, count) and (index == "0" or index[0] != "0") else ""

    def declare(self, name: str) -> bool:
        """Put a name into this block; False if it is there already. Registers, labels and variables share their names."""
        prefix = name.rstrip("0123456789")
        if name in self.declared or _below(name[len(prefix) :], self.families.get(prefix, ("", 0))[1]):
            return False
        self.declared.add(name)
        return True

    def declare_list(self, prefix: str, type: str, count: int) -> bool:
        """Put the list %r<count> into this block; False if one of its registers is there already."""
        digits = (name[len(prefix) :] for name in self.declared if name.startswith(prefix))
        if prefix in self.families or any(_below(own, count) for own in digits):
            return False
        self.families[prefix] = (type, count)
        return True

    def register(self, name: str) -> str | None:
        """The unique name of a register that is visible here, or None."""
        own = self.names.get(name)
        if own is None:
            if type := self.family(name):
                own = self.unique(name)
                self.function.made.registers[own] = (type, 1)
            elif self.parent is not None:
                own = self.parent.register(name)
            if own is not None:
                self.names[name] = own
        return own

    def symbol(self, name: str) -> str:
        """The unique name of a label or variable of the function that is visible here; of anything else the name itself."""
        if name in self.symbols or self.parent is None:
            return self.symbols.get(name, name)
        return self.parent.symbol(name)

    def resolved(self, operand: Operand) -> Operand:
        """A symbol with its unique name; anything else as it is."""
        return operand._replace(name=self.symbol(operand.name)) if isinstance(operand, Symbol) else operand


def _below(digits: str, count: int) -> bool:
    """Whether digits are a number below another."""
    return digits.isdecimal() and len(digits) < 10 and int(digits) < count


class BodyReader:
    """The body of one function."""

    def __init__(self, reader: Scanner, module: Module, made: Function) -> None:
        self.reader, self.module, self.made = reader, module, made
        self.scopes = 0
        self.scope = self._inner(None)
        self.vectors: dict[str, int] = {}  # registers declared as vectors, by unique name: how long they are
        for parameter in (*made.params, *made.returns):
            self.scope.declared.add(parameter.name)
            if parameter.space == "reg":
                self.scope.names[parameter.name] = parameter.name
                made.registers[parameter.name] = (parameter.type, 1)
            else:
                self.scope.symbols[parameter.name] = parameter.name
        self.pending: list[tuple[int, Scope]] = []  # instructions that name symbols, to be looked up when all are known
        self.tables: list[tuple[str, int, Scope]] = []  # lists of targets, by name, and where they stand
        self.source: Location | None = None
        self.located: dict[tuple[int, int, int], Location] = {}  # by file, line and column

    def _inner(self, parent: Scope | None) -> Scope:
        self.scopes += 1
        return Scope(self.scopes, parent, self)

    def read(self) -> None:
        """Everything up to the closing brace."""
        reader, depth = self.reader, 1
        text = reader.text
        while reader.skip():
            letter = text[reader.at]
            if letter == "{":
                depth += 1
                if depth > reader.nesting:
                    raise reader.error(f"blocks nest deeper than {reader.nesting}")
                reader.at += 1
                self.scope = self._inner(self.scope)
            elif letter == "}":
                reader.at += 1
                depth -= 1
                if depth == 0:
                    self._finish()
                    return
                self.scope = self.scope.parent or self.scope
            elif letter == ".":
                self._directive()
            elif letter == ";":
                reader.at += 1  # an empty statement
            elif (label := LABEL.match(text, reader.at)) is not None:
                self._label(label)
            else:
                self._instruction()
        raise reader.error(f"the body of {self.made.name} does not end")

    def _declared(self, name: str, start: int, shown: str = "") -> str:
        """The unique name of what a block declares."""
        if not self.scope.declare(name):
            raise self.reader.error(f"{shown or shortened(name)[1:-1]} is declared twice in one block", start)
        return self.scope.unique(name)

    def _label(self, match: re.Match[str]) -> None:
        name, reader = match[1], self.reader
        start, reader.at = reader.at, match.end()
        reader.skip()
        targets = TARGETS.match(reader.text, reader.at)
        own = self.scope.symbols[name] = self._declared(name, start)
        if targets:
            reader.require(f".{targets[1]}", SINCE.get(targets[1]), start)
            reader.at = targets.end()
            self.made.targets[own] = tuple(part.strip() for part in targets[2].split(","))
            self.tables.append((own, start, self.scope))
        elif reader.text.startswith(".callprototype", reader.at):
            reader.at += len(".callprototype")
            returns = parameters(reader) if reader.text[reader.at :].lstrip()[:1] == "(" else ()
            reader.expect("_")
            params = parameters(reader)
            while not reader.took(";"):
                reader.take(WORD, "a directive")
                reader.take(NUMBERS, "numbers")
            self.made.prototypes[own] = (returns, params)
        else:
            self.made.labels[own] = len(self.made.body)

    def _located(self, match: re.Match[str]) -> Location | None:
        """What a .loc says; where it is inlined is the last .loc of that place before, with where that was inlined itself."""
        file, line, column = int(match[1]), int(match[2]), int(match[3] or 0)
        caller = None
        if match[4]:
            at = int(match[4]), int(match[5]), int(match[6])
            caller = self.located.get(at) or Location(self.module.files, *at)
        if not line:
            return caller
        found = self.located[file, line, column] = Location(self.module.files, file, line, column, caller)
        return found

    def _directive(self) -> None:
        reader = self.reader
        match = LOC.match(reader.text, reader.at)
        if match:
            reader.at = match.end()
            # LLVM counts the lines of inline assembly on from that of the statement (Triton 3.8, 3.9).
            if not reader.inlined:
                self.source = self._located(match)
            return
        word = reader.word()
        if word == "reg":
            self._registers()
        elif word in SPACES:
            start = reader.at
            variable = reader.declaration()
            own = self.scope.symbols[variable.name] = self._declared(variable.name, start, shortened(variable.name))
            self.made.variables[own] = reader.initial(variable)
        elif word == "pragma":
            reader.take(PRAGMA, "a pragma")
        else:
            raise reader.unknown(f"no directive .{word} in a function", word, DIRECTIVES)

    def _registers(self) -> None:
        reader = self.reader
        start = reader.at
        reader.at += len(".reg")
        vector, type = 1, ""
        while reader.skip() and reader.text[reader.at] == ".":
            word = reader.take(WORD, "a type")[1]
            if word in ("v2", "v4"):
                vector = int(word[1:])
            elif word in DECLARED:
                type = word
                reader.require(f".{word}", SINCE.get(word), start)
            else:
                raise reader.unknown(f"no type .{word}", word, DECLARED, start)
        if not type:
            raise reader.error(f"registers without a type; valid: {listing(DECLARED)}", start)
        while True:
            reader.skip()
            start = reader.at
            match = reader.take(REGISTERS, "the name of a register")
            name, count = match[1], match[2]
            if count is not None:
                if int(count) > MOST_REGISTERS:
                    raise reader.error(f"{count} registers; valid: up to {MOST_REGISTERS}", start)
                if vector > 1:
                    raise reader.error(f"{name[:40]}<{count}>: a vector of registers is declared one by one", start)
                if not self.scope.declare_list(name, type, int(count)):
                    raise reader.error(f"a register of {name[:40]}<{count}> is declared twice in one block", start)
            else:
                own = self._declared(name, start)
                if name in CONSTANTS:
                    raise reader.error(f"{name} is a constant", start)
                self.scope.names[name] = own
                if vector > 1:
                    self.vectors[own] = vector
                for axis in AXES[:vector] if vector > 1 else ("",):
                    self.scope.names[name + axis] = own + axis
                    self.made.registers[own + axis] = (type, 1)
            if not reader.took(","):
                break
        reader.expect(";")
        self.scope.operands.clear()
        self.scope.parts.clear()

    def _instruction(self) -> None:
        reader = self.reader
        start = reader.at
        match = INSTRUCTION.match(reader.text, start)
        if match is None:
            raise reader.error(f"{reader.shown()} is not an instruction, a label or a directive")
        reader.at = match.end()
        negated, guard, opcode, rest = match.groups()
        opcode = "".join(opcode.split())  # inline assembly writes `lop3 .b32` too
        scope = self.scope
        if (complaint := refusal(opcode)) is not None:
            raise reader.error(complaint, start)
        try:
            operands, symbolic = scope.operands.get(rest) or self._operands(rest, scope)
            predicate = None
            if guard is not None:
                own = scope.register(guard)
                if own is None:
                    raise PtxError(f"no predicate {shortened(guard)}")
                if self.made.registers.get(own, ("",))[0] != "pred":
                    raise PtxError(f"{shortened(guard)} is not a predicate")
                predicate = Register(own)
            spelled = known(opcode, len(operands) - 1, bool(operands) and isinstance(operands[0], Pair))
            spelled.check(operands)
        except ValueError as error:
            raise reader.error(f"{shortened(opcode)[1:-1]}: {unmodelled(opcode) or error}", start) from None
        version = spelled.version
        if spelled.forms:
            version = spelled.version_of(operands, self.made.registers, self.module.target)
        reader.require(shortened(opcode)[1:-1], version, start)
        for operand in operands:
            if type(operand) is Special:
                reader.require(f"%{operand.name}", since(operand.name), start)
        body = self.made.body
        if symbolic:
            self.pending.append((len(body), scope))
        line, column = reader.place(start)
        item = Instruction(spelled.opcode, operands, line, column, predicate, negated == "!", self.source)
        if not symbolic and "param::func" in opcode:
            self._placed(item)
        body.append(item)

    def _operands(self, rest: str, scope: Scope) -> tuple[tuple[Operand, ...], bool]:
        """The operands of a list, and whether one of them names a symbol; a list is read once in a block."""
        names, known, rest_read = scope.names, scope.parts, rest.strip()
        listed: list[Operand] = []
        for part in split(rest_read) if rest_read else ():
            own = names.get(part)
            operand = Register(own) if own is not None else known.get(part)
            if operand is None:
                operand = known[part] = read_operand(part, scope.register)
            listed.append(operand)
        operands = rebuilt(tuple(listed), self._apart) if self.vectors else tuple(listed)
        inner = (own for operand in operands if type(operand) is not Register for own in leaves(operand))
        found = operands, any(isinstance(own, Symbol) for own in inner)
        scope.operands[rest] = found
        return found

    def _apart(self, operand: Operand) -> Operand:
        """An operand in which a register declared as a vector is its components."""
        if not isinstance(operand, Register) or operand.name not in self.vectors:
            return operand
        return Vector(tuple(Register(operand.name + axis) for axis in AXES[: self.vectors[operand.name]]))

    def _finish(self) -> None:
        """Give symbols their unique names, now that all labels are known."""
        for name, start, scope in self.tables:
            self.made.targets[name] = tuple(map(scope.symbol, self.made.targets[name]))
            for label in self.made.targets[name]:
                if label not in self.made.labels and label not in self.module.functions:
                    raise self.reader.error(f"{shortened(label)} is not a label or function", start)
        for index, scope in self.pending:
            found = self.made.body[index]
            if scope.parent is not None or self.made.labels:
                found = self.made.body[index] = found._replace(operands=rebuilt(found.operands, scope.resolved))
            self._placed(found)

    def _placed(self, item: Instruction) -> None:
        if complaint := misplaced(item, self.made, self.module):
            raise PtxError(f"{item.opcode}: {complaint}", item.line, item.column)
