"""Asks a GPU which addresses and strides wmma.load and wmma.store take, and where they then read and write.

    python -m conformance.suite.wmma_places [--seconds N] [--output FILE.json]

Every row runs once with all the places that the model takes, and the bits are compared. Then some rows of every kind run with
a place that the model refuses, which ought to end their process with a misaligned address; each of these costs a new one, so
they stop when the time is up. Exit status 0 if nothing contradicts the model.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tcsim
from conformance.suite.hardware import Hardware, Unassembled, Workshop
from hwkernels.device.driver import POISON
from hwkernels.device.errors import CudaError
from hwkernels.device.worker import WorkerError
from hwkernels.probes.wmma import MEMORY_BYTES
from tcsim import catalog
from tcsim.core.addresses import AddressError
from tcsim.core.files import write_file
from tcsim.isa.wmma.tile import FragmentLoad, FragmentMove, FragmentStore

EXTRA = (*range(-16, 10), 12, 13, 16, 17, 20, 24, 31)
"""What is added to a tile's own stride: every remainder of every unit, and strides with which lines overlap."""
OFFSETS = (0, 1, 3, 8, 21)
"""Where tiles begin, in accesses."""


@dataclass
class Answers:
    """What came of it."""

    gpu: str
    assembler: str = ""
    places: int = 0  # compared
    wrong: list[str] = field(default_factory=list)  # rows whose bits differ, or that faulted
    faulted: list[str] = field(default_factory=list)  # refused by the model, and by the GPU
    silent: list[str] = field(default_factory=list)  # refused by the model only
    not_asked: list[str] = field(default_factory=list)


def instructions(arch: str) -> list[FragmentMove]:
    """Every wmma.load and wmma.store of an arch."""
    rows = [row for row in catalog.rows().values() if row.family in ("wmma.load", "wmma.store")]
    found = [tcsim.instruction(row.mnemonic, arch=arch) for row in rows if arch in row.targets]
    return [item for item in found if isinstance(item, FragmentMove)]


def taken_places(instruction: FragmentMove) -> tuple[np.ndarray, np.ndarray]:
    """The addresses and strides (places,) that the model takes, tiles inside the memory."""
    places = []
    memory, registers = np.zeros(MEMORY_BYTES, np.uint8), np.zeros((32, instruction.operand.registers), np.uint32)
    for extra in EXTRA:
        for offset in OFFSETS if extra in (0, 1, 4, 8) else OFFSETS[:2]:
            stride, address = instruction.default_stride + extra, offset * instruction.alignment
            try:
                if isinstance(instruction, FragmentStore):
                    instruction.execute(memory, address, registers, stride)
                elif isinstance(instruction, FragmentLoad) and stride >= 0:
                    instruction.execute(memory, address, stride)
                else:
                    continue
            except tcsim.OperandError:
                continue
            places.append((address, stride))
    address, stride = np.array(places, np.uint32).T
    return address, stride


def refused_places(instruction: FragmentMove) -> Iterator[tuple[int, int]]:
    """An address and a stride that the model refuses as misaligned, if there are any."""
    default = instruction.default_stride
    for address, stride in ((instruction.alignment // 2, default), *((0, default + extra) for extra in range(1, 33))):
        try:
            instruction.check(address, stride)
        except AddressError:
            yield address, stride
            if address == 0:
                return


def inputs_at(instruction: FragmentMove, address: np.ndarray, stride: np.ndarray, seed: int) -> dict[str, Any]:
    """Random memories or registers for places."""
    stream = np.random.default_rng(seed)
    places = {"address": address.astype(np.uint32), "stride": stride.astype(np.uint32)}
    if isinstance(instruction, FragmentStore):
        shape: tuple[int, ...] = (len(address), 32, instruction.operand.registers)
        # copies of an element hold the same bits
        codes = instruction.matrix(stream.integers(0, 2**32, shape, np.uint32))
        return {"registers": instruction.registers(codes), **places}
    return {"memory": stream.integers(0, 256, (len(address), MEMORY_BYTES), np.uint8), **places}


def model(instruction: FragmentMove, inputs: dict[str, Any]) -> np.ndarray:
    """What the probe ought to write."""
    if isinstance(instruction, FragmentStore):
        out = instruction.execute(np.full(MEMORY_BYTES, POISON, np.uint8), **inputs)
        return out.view("<u4").astype(np.uint32, copy=False)
    assert isinstance(instruction, FragmentLoad)
    return instruction.execute(**inputs)


def ask(hardware: Hardware, seconds: float, seed: int) -> Answers:
    """Every row with what the model takes, then rows of every kind with what it refuses, until the time is up."""
    start, every = time.monotonic(), instructions(hardware.info.arch)
    workshop, answers = Workshop(every), Answers(hardware.text)
    for instruction in every:
        address, stride = taken_places(instruction)
        inputs = inputs_at(instruction, address, stride, seed)
        try:
            made = workshop.probe(instruction, instruction.targets[0])
            (got,) = hardware.run(made, inputs)
        except (WorkerError, CudaError, Unassembled) as error:
            answers.wrong.append(f"{instruction.mnemonic}: {error}")
            continue
        answers.assembler, answers.places = made.assembler, answers.places + len(address)
        differs = (
            np.asarray(got).reshape(len(address), -1) != model(instruction, inputs).reshape(len(address), -1)
        ).any(-1)
        if differs.any():
            bad = [f"{a:#x}/{s}" for a, s in zip(address[differs].tolist(), stride[differs].tolist(), strict=True)]
            answers.wrong.append(f"{instruction.mnemonic}: different bits at address/stride {' '.join(bad)}")
    kinds: dict[tuple[Any, ...], FragmentMove] = {}
    for instruction in every:
        operand, unit = instruction.operand, instruction.accesses
        key = (unit.opcodes[0][0], operand.name, unit.element_bits, unit.stride_unit, instruction.row_major)
        kinds.setdefault(key, instruction)
    for instruction in kinds.values():
        for place in refused_places(instruction):
            text = f"{instruction.mnemonic} address={place[0]} stride={place[1]}"
            if time.monotonic() - start > seconds:
                answers.not_asked.append(text)
                continue
            inputs = inputs_at(instruction, np.array([place[0]]), np.array([place[1]]), seed)
            try:
                hardware.run(workshop.probe(instruction, instruction.targets[0]), inputs)
                answers.silent.append(text)
            except (WorkerError, CudaError) as error:
                known = "MISALIGNED" in str(error)
                answers.faulted.append(text if known else f"{text}: {error}")
    return answers


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m conformance.suite.wmma_places", description=__doc__)
    parser.add_argument("--seconds", type=float, default=150.0, help="start no further fault after this many seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    hardware = Hardware()
    try:
        answers = ask(hardware, given.seconds, given.seed)
    finally:
        hardware.close()
    if given.output is not None:
        write_file(given.output, json.dumps(vars(answers), indent=1) + "\n")
    print(f"{answers.gpu}, {answers.assembler}: {answers.places} places compared, {len(answers.wrong)} rows differ")
    print(
        f"{len(answers.faulted)} refused places fault, {len(answers.silent)} do not, {len(answers.not_asked)} not asked"
    )
    for name in ("wrong", "silent"):
        for line in getattr(answers, name)[:20]:
            print(f"  {name}: {line}")
    for line in [line for line in answers.faulted if ": " in line][:10]:
        print(f"  another fault: {line}")
    return 1 if answers.wrong or answers.silent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
