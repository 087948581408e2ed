"""Block-scaled mma.sync and mma.sp under test: registers of a, b, c and of scales, selectors of scales, metadata."""

from __future__ import annotations

import numpy as np

from conformance.comparison import Array, Codes, Comparison, compare_matrices
from conformance.isa.mma.scale_mutants import MUTANTS, matrices_of
from conformance.stimuli import scaled as scaled_inputs
from conformance.stimuli.scaled import ScaledProblem
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Testbench
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.isa.mma.scaled_sparse_multiply import ScaledSparseMatrixMultiply


class ScaledTestbench(Testbench):
    """Block-scaled multiplies, dense and sparse: registers of d out."""

    mutants = MUTANTS

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

    def compare(self, instruction: ScaledMatrixMultiply, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of D; of a sparse A, with the rows of B that the kept elements meet."""
        codes = matrices_of(instruction, inputs)
        columns = None
        if isinstance(instruction, ScaledSparseMatrixMultiply):
            columns = instruction.sparsity.columns(codes["metadata"])

        def terms(warp: int, matrix: int, row: int, column: int) -> Codes:
            b = codes["b"][warp, :, column]
            return {
                "a": codes["a"][warp, row],
                "b": b if columns is None else b[columns[warp, row]],
                "scale_a": codes["scale_a"][warp, row],
                "scale_b": codes["scale_b"][warp, :, column],
                "c": codes["c"][warp, row, column],
            }

        scales = dict.fromkeys(("scale_a", "scale_b"), instruction.row.scale_a.format)
        return compare_matrices(instruction, terms, instruction.formats | scales, hardware, model)


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
