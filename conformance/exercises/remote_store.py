"""The exercise of st.async and red.async: values of 32 threads written to another block's image of shared memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance.exercises import Array, Comparison, Inputs, WrongModel
from conformance.moved import LIMIT, MoveMismatch, require_same_shape
from conformance.stream import Stream
from conformance.wrong_remote_stores import WRONG_REMOTE_STORES
from hwkernels.probes.images import IMAGE_BYTES, LANES
from hwkernels.probes.remote_store import VALUE_WORDS
from tcsim.isa.st_async import RemoteFacts, RemoteInstruction
from tcsim.memory.mbarrier import MBarrier

Words = npt.NDArray[np.uint32]
SAMPLES = 16
CROWDED = 4
"""Addresses of a sample in which several threads reduce at one address."""


def codes_of(facts: RemoteFacts, value: Array) -> Array:
    """What a row takes of the words (..., 4) of each thread: codes (...), or (..., words) of a vector."""
    used = np.ascontiguousarray(value[..., : facts.bytes // 4]).view(f"<u{facts.word_bits // 8}")
    return used[..., 0] if facts.words == 1 else used


class RemoteStoreExercise:
    """Images and values in, images out."""

    wrong_models: tuple[WrongModel, ...] = WRONG_REMOTE_STORES

    def classes(self, instruction: RemoteInstruction) -> list[str]:
        """Random values at places of their own; of reductions also the ends of the type, and several threads at one place."""
        return ["spread"] if instruction.facts.reduction is None else ["spread", "ends", "crowded"]

    def samples(self, instruction: RemoteInstruction, name: str) -> int:
        """Images of a case."""
        return SAMPLES

    def inputs(self, instruction: RemoteInstruction, name: str, seed: int, samples: int) -> Inputs:
        """smem uint8 (samples, 1024), address uint32 (samples, 32), value uint32 (samples, 32, 4)."""
        stream, facts = Stream(instruction.mnemonic, name, seed), instruction.facts
        image, value = self._words(stream, name, facts, (samples, IMAGE_BYTES // 4)), (samples, LANES, VALUE_WORDS)
        words = self._words(stream, name, facts, value)
        places = np.argsort(stream.words((samples, IMAGE_BYTES // facts.bytes)), axis=1)[:, :LANES]
        if name == "crowded":
            places = np.take_along_axis(places, stream.below(CROWDED, (samples, LANES)), axis=1)
            if facts.reduction is not None and facts.reduction.ordered:
                words[:] = words[:, :1]  # one operand for all threads: then their order does not matter
        return {"smem": image.view(np.uint8), "address": (places * facts.bytes).astype(np.uint32), "value": words}

    @staticmethod
    def _words(stream: Stream, name: str, facts: RemoteFacts, shape: tuple[int, ...]) -> Words:
        if name == "spread":
            return stream.words(shape).astype(np.uint32)
        top = (1 << facts.word_bits) - 1
        ends = np.array([0, 1, 2, 3, 4, 5, top, top - 1, top >> 1, (top >> 1) + 1, 0xFFFF_FFFF], np.uint64)
        per = facts.word_bits // 32
        chosen = stream.choice(ends, (*shape[:-1], shape[-1] // per)).astype(f"<u{4 * per}")
        return chosen.view("<u4").astype(np.uint32)

    def model(self, instruction: RemoteInstruction, inputs: Inputs) -> Words:
        """The images of the second block as words (samples, 256); zeros if its barrier's phase would not end."""
        facts, barrier = instruction.facts, MBarrier(1)
        state = barrier.arrive_expect_tx(LANES * facts.bytes)
        codes = codes_of(facts, inputs["value"])
        image, after = instruction.execute(inputs["smem"], inputs["address"].astype(np.int64), codes, barrier)
        ended = after.test_wait(state) and after.tx_count == 0
        return image.view("<u4") if ended else np.zeros((len(image), IMAGE_BYTES // 4), np.uint32)

    def compare(self, instruction: RemoteInstruction, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Byte by byte.

        Raises ValueError if the results have another shape.
        """
        require_same_shape(hardware, model)
        ours, theirs = (np.ascontiguousarray(array).view(np.uint8) for array in (model, hardware))
        wrong, size = np.argwhere(ours != theirs), instruction.facts.bytes
        first = []
        for sample, at in wrong[:LIMIT].tolist():
            lanes = np.flatnonzero(inputs["address"][sample] == at // size * size).tolist()
            told = f"byte {at % size} of {size}, by lanes {lanes}" if lanes else "no lane writes it"
            steps = tuple(
                f"lane {lane}: {[hex(word) for word in inputs['value'][sample, lane].tolist()]}" for lane in lanes
            )
            codes = f"{theirs[sample, at]:#04x}", f"{ours[sample, at]:#04x}"
            first.append(MoveMismatch(f"sample {sample} address {at:#x}", told, *codes, steps))
        return Comparison(ours.size, len(wrong), tuple(first))


REMOTE = RemoteStoreExercise()
