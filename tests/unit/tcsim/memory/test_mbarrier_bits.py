"""Where the fields of an mbarrier object lie, read again from the machine code that the assembler at hand emits.

ptxas makes the initial object, the pending count of a state and the tests of a phase and a layout in plain instructions.
They are few: a small interpreter runs them on numbers, and `tcsim.memory.mbarrier_bits` must say the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwkernels.device.sass import SassInstruction, disassemble
from hwkernels.device.toolchain import assemble
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.memory import mbarrier_bits
from tcsim.memory.mbarrier import LAYOUTS, MBarrier
from tcsim.memory.mbarrier_object import BarrierObject
from tests.support.extent import examples

WORD = 0xFFFF_FFFF
SHIFTED = ("sm_90a", "sm_100a", "sm_103a", "sm_107a", "sm_110a", "sm_120a")
HELD = ("sm_80", "sm_86", "sm_89")


SHOWN = "selp.u32 %c, 1, 0, %p; st.global.u32 [%a], %c;"
BODIES = {
    "init": "mbarrier.init.shared.b64 [%m], %n;",
    "pending_count": "ld.global.u64 %s, [%a]; mbarrier.pending_count.b64 %c, %s; st.global.u32 [%a], %c;",
    "test_wait": f"ld.global.u64 %s, [%a]; mbarrier.test_wait.shared.b64 %p, [%m], %s; {SHOWN}",
    "parity": f"mbarrier.test_wait.parity.shared.b64 %p, [%m], %n; {SHOWN}",
}
LAYOUT_BODIES = {
    "init.v0": "mbarrier.init.layout::v0.shared.b64 [%m], %n;",
    "init.v1": "mbarrier.init.layout::v1.shared.b64 [%m], %n;",
    "check.v0": f"mbarrier.check_layout.layout::v0.shared::cta.b64 %p, [%m]; {SHOWN}",
    "check.v1": f"mbarrier.check_layout.layout::v1.shared::cta.b64 %p, [%m]; {SHOWN}",
}
"""From sm_90 on."""


@cache
def module(target: str) -> dict[str, list[SassInstruction]]:
    """The machine instructions of every body in a kernel with the parameters `a` (u64) and `n` (u32), by its name."""
    bodies = BODIES | (LAYOUT_BODIES if TARGETS[target].number >= 90 else {})
    text = f".version 9.4\n.target {target}\n.address_size 64\n.shared .align 8 .b64 bar;\n"
    for name, body in bodies.items():
        text += f"""
        .visible .entry {name.replace(".", "_")}(.param .u64 a, .param .u32 n)
        {{
            .reg .u64 %a, %s;
            .reg .u32 %n, %m, %c;
            .reg .pred %p;
            ld.param.u64 %a, [a];
            ld.param.u32 %n, [n];
            mov.u32 %m, bar;
            {body}
            ret;
        }}
        """
    found = {function.name: list(function.instructions) for function in disassemble(assemble(text, target).cubin)}
    return {name: found[name.replace(".", "_")] for name in bodies}


Values = dict[str, int]


def value(operand: str, values: Values) -> int:
    """The 32-bit value of an operand: a register, a constant, zero; negated with a minus."""
    sign = -1 if operand.startswith("-") and not re.fullmatch(r"-(0x)?[0-9a-f]+", operand) else 1
    name = operand.removeprefix("-") if sign < 0 else operand
    name = name.split(".")[0] if name[0] in "RU" else name
    if name in ("RZ", "URZ"):
        return 0
    number = int(name, 0) if re.fullmatch(r"-?(0x)?[0-9a-f]+", name) else values[name]
    return sign * number & WORD


def logic(a: int, b: int, c: int, table: int) -> int:
    """LOP3: the bit of the table that the three bits choose, 32 times."""
    total = 0
    for place in range(32):
        index = (a >> place & 1) << 2 | (b >> place & 1) << 1 | c >> place & 1
        total |= (table >> index & 1) << place
    return total


def run(
    instructions: list[SassInstruction], values: Values, stop: Callable[[SassInstruction], bool]
) -> SassInstruction:
    """Run plain instructions on the values until `stop`; what loads and stores memory is passed over.

    Raises AssertionError for an arithmetic instruction that it does not know.
    """
    for item in instructions:
        if stop(item):
            return item
        name = item.opcode.removeprefix("U").split(".")[0]
        parts = [part for part in item.operands.split(", ") if part not in ("UPT", "PT", "!PT", "!UPT")]
        if name in ("MOV", "IADD3", "IADD", "SHF", "LOP3", "IMAD", "LEA"):
            predicates = [part for part in parts if re.fullmatch(r"U?P\d", part)]
            first, *rest = [part for part in parts if part not in predicates]
            if any(part.startswith("c[") and part not in values for part in rest):
                continue
            if any(re.match(r"-?U?R\d", part) and part.lstrip("-").split(".")[0] not in values for part in rest):
                continue
            found = [value(part, values) for part in rest]
            result = compute(item.opcode.removeprefix("U"), name, found)
            values[first] = result
            for predicate in predicates[:1]:
                values[predicate] = int(result != 0)
        elif name in ("LDC", "ULDC", "LDCU") and parts[1] in values:
            values[parts[0]] = values[parts[1]]
    raise AssertionError("the instruction that was looked for is not there")


def compute(opcode: str, name: str, found: list[int]) -> int:
    """One instruction on numbers."""
    if name == "MOV":
        return found[0]
    if name in ("IADD3", "IADD"):
        return sum(found) & WORD
    if name == "LOP3":
        return logic(*found[:4])
    if name == "IMAD":
        return (found[0] * found[1] + found[2]) & WORD
    if opcode.startswith("SHF.L"):
        return found[0] << found[1] & WORD
    if opcode.startswith("SHF.R.U32.HI"):
        return found[2] >> found[1]
    raise AssertionError(f"{opcode} is not known to this test")


def parameter(target: str) -> str:
    """The constant that the parameter `n` is: eight bytes behind the first parameter."""
    return {"sm_8": "c[0x0][0x168]", "sm_9": "c[0x0][0x218]"}.get(target[:4], "c[0x0][0x388]")


def initial_object(target: str, layout: str, count: int) -> int:
    """The object that mbarrier.init stores."""
    values = {parameter(target): count}
    end = run(
        module(target)["init" + layout],
        values,
        lambda item: item.opcode.endswith("SYNCS.EXCH.64") or item.opcode == "STS.64",
    )
    low = end.operands.split(", ")[-1]
    prefix, number = re.fullmatch(r"(U?R)(\d+)", low).groups()  # type: ignore[union-attr]
    return values[f"{prefix}{int(number) + 1}"] << 32 | values[low]


@pytest.mark.parametrize("target", [*HELD, *SHIFTED])
def test_a_new_object(target: str) -> None:
    """init: both counts are in the object as `MBarrier.encode` puts them, everything else is zero."""
    arch = TARGETS[target].arch
    layouts = {"": "v0"} | ({".v0": "v0", ".v1": "v1"} if ARCHS[arch].number >= 90 else {})
    compared = 0
    for words, layout in layouts.items():
        if layout == "v1" and arch in mbarrier_bits.OWN_LAYOUT_V1:
            continue
        for count in (1, 2, 5, 511, *((12345, LAYOUTS["v0"]) if layout == "v0" else ())):
            found = initial_object(target, words, count)
            assert found == MBarrier(count, layout).encode(arch=arch), (words, count)
            assert MBarrier.decode(found, arch=arch) == MBarrier(count, layout)
            compared += 1
    assert compared >= 6


def test_layout_v1_is_another_on_sm_107() -> None:
    """Its counts have nine bits: why `MBarrier.encode` refuses it there."""
    found = initial_object("sm_107a", ".v1", 5)
    assert (found >> 43, found & 0xFFFF) == (512 - 5, (512 - 5) << 4 | 1)


@pytest.mark.parametrize("target", [*HELD, *SHIFTED])
def test_the_pending_count_of_a_state(target: str) -> None:
    """pending_count: a field of the state's high word, taken from a power of two."""
    instructions = module(target)["pending_count"]
    place = next(i for i, item in enumerate(instructions) if item.opcode.startswith("LDG"))
    load = instructions[place]
    first = load.operands.split(", ")[0]
    high = first if load.opcode == "LDG.E" else f"R{int(first[1:]) + 1}"

    @examples(40)
    @given(st.integers(0, (1 << 64) - 1))
    def agree(state: int) -> None:
        values = {high: state >> 32}
        end = run(instructions[place + 1 :], values, lambda item: item.opcode.startswith("STG"))
        stored = end.operands.split(", ")[-1]
        assert values[stored] == mbarrier_bits.pending_count(state, TARGETS[target].arch) & WORD

    agree()


@pytest.mark.parametrize("target", HELD)
def test_the_phase_before_hopper(target: str) -> None:
    """test_wait: complete if bit 63 of the object and of the state (or the parity) differ."""
    for name, low in (("test_wait", False), ("parity", True)):
        instructions = module(target)[name]
        compared = 0
        for phase in (0, 1):
            for given_phase in (0, 1):
                word = phase << 31 | 0x1234567
                values = {parameter(target): given_phase}
                for item in instructions:
                    if item.opcode == "LDS":
                        values[item.operands.split(", ")[0]] = word
                    if item.opcode == "LDG.E" and not low:
                        values[item.operands.split(", ")[0]] = given_phase << 31 | 0x7654321
                end = run(instructions, values, lambda item: item.opcode == "SEL")
                predicate = end.operands.split(", ")[-1]
                assert predicate.startswith("!P")  # 1 if the predicate is false, and the source order is RZ, 1
                assert values[predicate[1:]] == (phase != given_phase)
                compared += 1
        assert compared == 4


@pytest.mark.parametrize("target", SHIFTED)
def test_phase_and_layout_from_hopper_on(target: str) -> None:
    """A parity goes to bit 31 of the word that PHASECHK compares, a state's high word goes there as it is; layout is bit 0."""
    values = {parameter(target): 1}
    end = run(module(target)["parity"], values, lambda item: "PHASECHK" in item.opcode)
    assert values[end.operands.split(", ")[-1]] == 1 << 31
    (load,) = [item for item in module(target)["test_wait"] if item.opcode.startswith("LDG")]
    (check,) = [item for item in module(target)["test_wait"] if "PHASECHK" in item.opcode]
    assert load.opcode == "LDG.E.64"
    assert check.operands.split(", ")[-1] == f"R{int(load.operands.split(', ')[0][1:]) + 1}"
    for layout, table in (("v1", 0xC0), ("v0", 0x0C)):
        found = module(target)[f"check.{layout}"]
        tests = [item.operands for item in found if item.opcode == "LOP3.LUT" and ", 0x1, RZ" in item.operands]
        assert len(tests) == 1
        assert f"{table:#x}" in tests[0]


def test_fields_do_not_overlap() -> None:
    """Every bit belongs to one field at most; of sm_90 and later, to one."""
    for arch, fields in mbarrier_bits.FIELDS.items():
        bits = [bit for field in fields for bit in range(field.low, field.low + field.bits)]
        assert len(bits) == len(set(bits))
        assert set(bits) == set(range(64)) if ARCHS[arch].number >= 90 else set(bits) == set(range(64)) - {30, 31}


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("value", [0, (1 << 64) - 1, 0x0123_4567_89AB_CDEF])
def test_an_object_is_shown_by_its_fields_and_the_bits_that_are_left(arch: str, value: int) -> None:
    found = BarrierObject(value, arch, mbarrier_bits.FIELDS[arch])
    shown = found.as_dict()
    masks = [(2 << item["high"]) - (1 << item["low"]) for item in shown["fields"]]
    assert masks == [field.mask for field in found.fields] and len(masks) >= 4
    assert int(shown["unknown_bits"], 16) == found.unknown == value & ~sum(masks)
