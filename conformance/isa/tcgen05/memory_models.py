"""What the model says after loads, stores, copies, shifts and multiplies of Tensor Memory, for a batch of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.testbench import Array, Inputs
from hwkernels.probes.tcgen05_ld_st import WARPS
from tcsim.isa.tcgen05.cp import CopyToTensorMemory, ShiftTensorMemory
from tcsim.isa.tcgen05.move import StoreTensorMemory, TensorMemoryMove
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.memory.tensor_memory import TensorMemory
from tcsim.model.instruction import Instruction

Words = npt.NDArray[np.uint32]


def memory_of(words: Array) -> TensorMemory:
    """A Tensor Memory, all of it allocated, whose first columns hold uint32 (..., ctas, 128, columns)."""
    tmem = TensorMemory.allocated(words.shape[:-3], ctas=words.shape[-3])
    for cta in range(words.shape[-3]):
        tmem.write(np.arange(words.shape[-2])[:, None], np.arange(words.shape[-1]), words[..., cta, :, :], cta=cta)
    return tmem


def address_of(inputs: Inputs, sample: int, warp: int) -> dict[str, Any]:
    """Address, warp and split of one warp's instruction."""
    given = {"address": (warp << 21) + int(inputs["offset"][sample]), "warp": warp}
    return given | ({"half_split_offset": int(inputs["split"][sample])} if "split" in inputs else {})


def width_of(instruction: TensorMemoryMove) -> int:
    """Registers of a lane."""
    return sum(operand.registers for operand in instruction.operands.values())


def loaded(instruction: Any, inputs: Inputs) -> Words:
    """Registers of the four warps (samples, 4, 32, n)."""
    out = np.empty((len(inputs["tmem"]), WARPS, 32, width_of(instruction)), np.uint32)
    for sample, words in enumerate(inputs["tmem"]):
        tmem = memory_of(words[None])
        for warp in range(WARPS):
            result = instruction.execute(tmem, **address_of(inputs, sample, warp))
            out[sample, warp] = np.concatenate(result, axis=-1) if isinstance(result, tuple) else result
    return out


def stored(instruction: Any, inputs: Inputs) -> Words:
    """All cells (samples, 128, columns)."""
    out = np.empty_like(inputs["tmem"])
    for sample, words in enumerate(inputs["tmem"]):
        tmem = memory_of(words[None])
        for warp in range(WARPS):
            given = address_of(inputs, sample, warp)
            tmem = instruction.execute(tmem, registers=inputs["registers"][sample, warp], **given)
        out[sample] = tmem.words[0, :, : words.shape[-1]]
    return out


def copied(instruction: Any, inputs: Inputs) -> Words:
    """All cells (samples, ctas, 128, columns)."""
    out = np.empty_like(inputs["tmem"])
    for sample, words in enumerate(inputs["tmem"]):
        smem, offset, descriptor = (inputs[name][sample] for name in ("smem", "offset", "descriptor"))
        own = smem if instruction.row.cta_group == 2 else smem[0]
        tmem = instruction.execute(memory_of(words), int(offset), own, int(descriptor))
        out[sample] = tmem.words[..., : words.shape[-1]]
    return out


def shifted(instruction: Any, inputs: Inputs) -> Words:
    """All cells (samples, ctas, 128, columns)."""
    out = np.empty_like(inputs["tmem"])
    for sample, words in enumerate(inputs["tmem"]):
        tmem = instruction.execute(memory_of(words), int(inputs["offset"][sample]))
        out[sample] = tmem.words[..., : words.shape[-1]]
    return out


_MODELS = {StoreTensorMemory: stored, CopyToTensorMemory: copied, ShiftTensorMemory: shifted}


def result_of(instruction: Instruction, inputs: Inputs) -> Array:
    """What the model says, for any of these instructions."""
    return _MODELS.get(type(instruction), loaded)(instruction, inputs)


# --- multiplies


def executed(
    instruction: TensorMemoryMultiply,
    inputs: Inputs,
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda operands: operands,
) -> npt.NDArray[np.uint32]:
    """Tensor Memory after each sample; `change` may alter what `execute` is given."""
    out = np.empty_like(inputs["tmem"])
    for sample in range(len(out)):
        out[sample] = instruction.execute(**change(operands_of(instruction, inputs, sample))).words
    return out


def operands_of(instruction: TensorMemoryMultiply, inputs: Inputs, sample: int) -> dict[str, Any]:
    """The arguments of `execute` for one sample."""
    words = inputs["tmem"][sample]
    tmem = TensorMemory.allocated(ctas=instruction.row.cta_group)
    tmem.owned[:, words.shape[-1] :] = False
    tmem.words, tmem.written = words.copy(), np.ones(words.shape, np.bool_)
    tmem.owned = tmem.owned[:, : words.shape[-1]]
    image = inputs["image"][sample]
    arguments: dict[str, Any] = {"tmem": tmem, "smem": image if instruction.row.cta_group == 2 else image[0]}
    for name in ("d", "idesc", "scale_a", "scale_b", "metadata", "lookup"):
        if name in inputs:
            arguments[name] = int(inputs[name][sample])
    arguments["a"] = inputs["a"][sample] if inputs["a"].dtype == np.uint64 else int(inputs["a"][sample])
    arguments["b"] = inputs["b"][sample]
    arguments["enable_input_d"] = bool(inputs["enable_d"][sample])
    if "lanes" in inputs:
        arguments["disable_output_lane"] = inputs["lanes"][sample]
    if "mask" in inputs:
        arguments["zero_column_mask"] = int(inputs["mask"][sample])
    if "scale_d" in inputs:
        arguments["scale_input_d"] = int(inputs["scale_d"][sample])
    return arguments
