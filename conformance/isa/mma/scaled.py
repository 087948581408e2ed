"""Exercise of block-scaled matrix multiplies on registers, dense and sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison.multiply import Mismatch, compare_matrices
from conformance.isa.mma.scale_mutants import WRONG_MODELS, matrices_of
from conformance.slice import Array, Comparison, Inputs, WrongModel
from conformance.stimuli import scaled as scaled_inputs
from conformance.stimuli.scaled import ScaledProblem
from conformance.stimuli.stream import Stream
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.isa.mma.scaled_sparse_multiply import ScaledSparseMatrixMultiply
from tcsim.trace import show_code, trace


@dataclass(frozen=True)
class ScaledMismatch(Mismatch):
    """One result element on which hardware and model disagree, with the scales of its row and column."""

    scale_a: npt.NDArray[np.uint8]
    scale_b: npt.NDArray[np.uint8]

    def line(self, instruction: Any) -> str:
        """Everything about it in one line."""
        text = [
            f"{name}=[{' '.join(show_code(code, instruction.row.scale_a.format) for code in codes)}]"
            for name, codes in (("scale_a", self.scale_a), ("scale_b", self.scale_b))
        ]
        head, c, tail = super().line(instruction).partition(" c=")
        return f"{head} {' '.join(text)}{c}{tail}"

    def trace(self, instruction: Any) -> list[str]:
        """How the model came to its bits."""
        c = np.array([self.c], instruction.operands["c"].format.dtype)
        return trace(instruction, self.a, self.b, c, scale_a=self.scale_a, scale_b=self.scale_b)


class ScaledMultiply:
    """Registers of a, b, c and of scales, selectors of scales, and for a sparse A metadata in; registers of d out."""

    wrong_models: tuple[WrongModel, ...] = WRONG_MODELS

    def classes(self, instruction: ScaledMatrixMultiply) -> list[str]:
        """Those of plain float multiplies, and three about scales."""
        return [item.name for item in scaled_inputs.CLASSES.values() if item.applies(instruction)]

    def samples(self, instruction: ScaledMatrixMultiply, name: str) -> int:
        """Enough for 1,024 results, or for every product to be hot once."""
        return scaled_inputs.default_samples(instruction, scaled_inputs.CLASSES[name])

    def inputs(self, instruction: ScaledMatrixMultiply, name: str, seed: int, samples: int) -> Inputs:
        """Registers (samples, 32, n) of a, b, c; words (samples, 32) of scales and metadata; selectors (samples,).

        Every sample has selectors of its own. Bytes and words that they do not name are random.
        """
        problem = ScaledProblem(instruction, samples)
        stream = Stream(instruction.mnemonic, name, seed, "scales")
        matrices = scaled_inputs.CLASSES[name].make(problem, Stream(instruction.mnemonic, name, seed))
        out: Inputs = {}
        if isinstance(instruction, ScaledSparseMatrixMultiply):
            out["metadata"], matrices["b"] = _sparse(instruction, matrices["b"], stream)
        for key in "abc":
            out[key] = instruction.registers(key, matrices[key])
        for side in "ab":
            layout = instruction.scales[f"scale_{side}"].layout
            byte_id = stream.choice(layout.byte_ids, (samples,))
            thread_id = stream.choice(layout.thread_ids, (samples,))
            octets = (stream.words((samples, 128)) & np.uint64(0xFF)).astype(np.uint8)
            places = layout.places(byte_id, thread_id).reshape(samples, -1)
            np.put_along_axis(octets, places, matrices[f"scale_{side}"].reshape(samples, -1), axis=-1)
            out[f"scale_{side}"] = octets.view("<u4").astype(np.uint32, copy=False)
            out[f"byte_id_{side}"], out[f"thread_id_{side}"] = byte_id.astype(np.uint32), thread_id.astype(np.uint32)
        return out

    def model(self, instruction: ScaledMatrixMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Registers of d."""
        return instruction.execute(**inputs)

    def compare(self, instruction: ScaledMatrixMultiply, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of D; of a sparse A, with the rows of B that the kept elements meet."""
        codes = matrices_of(instruction, inputs)
        columns = None
        if isinstance(instruction, ScaledSparseMatrixMultiply):
            columns = instruction.sparsity.columns(codes["metadata"])

        def terms(warp: int, matrix: int, row: int, column: int) -> tuple[Array, Array, Any]:
            b = codes["b"][warp, :, column]
            met = b if columns is None else b[columns[warp, row]]
            return codes["a"][warp, row], met, codes["c"][warp, row, column]

        found = compare_matrices(instruction, terms, hardware, model)
        scales_a, scales_b = codes["scale_a"], codes["scale_b"]
        first = tuple(
            ScaledMismatch(
                **vars(item), scale_a=scales_a[item.warp, item.row], scale_b=scales_b[item.warp, :, item.column]
            )
            for item in found.first
            if isinstance(item, Mismatch)
        )
        return Comparison(found.outputs, found.mismatches, first)


def _sparse(instruction: ScaledSparseMatrixMultiply, b: Array, stream: Stream) -> tuple[Array, Array]:
    """Metadata words (samples, 32), and B (samples, K, N) in which the kept elements of row 0 meet the given rows.

    In every other warp all rows keep the same columns; the rows of B that row 0 does not meet are neighbours of those.
    """
    own, samples = instruction.sparsity, len(b)
    groups = stream.choice(np.array(own.valid, np.uint8), (samples, own.rows, own.groups))
    groups[::2] = groups[::2, :1]
    columns = own.columns(own.positions_of(groups))[:, 0]
    out = np.repeat(np.roll(b, 1, axis=1), 2, axis=1)
    out[np.arange(samples)[:, None], columns] = b
    used = own.words_of(np.full((own.rows, own.groups), 15, np.uint8), 0)
    noise = stream.words((samples, 32)).astype(np.uint32)
    return own.words_of(groups, 0) | (noise & ~used), out


SCALED = ScaledMultiply()

EXERCISES = {"mma.sync.block_scale": SCALED, "mma.sp.block_scale": SCALED}
