"""The bytes of tensor maps against those that CUTLASS's CuTe DSL builds."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

import tcsim
from tcsim.tma.types import DATA_TYPES, SWIZZLE_MODES
from tests.oracles.asking import Question, ask
from tests.support.tables import TABLES

PROJECT, SCRIPT = "nvidia-cutlass-dsl", "ask_cutlass_tensor_maps.py"
DUMPS = TABLES / "cute_dsl_tensor_maps.csv"
ELEMENTS = {
    "UINT8": "Uint8", "UINT16": "Uint16", "UINT32": "Uint32", "UINT64": "Uint64", "FLOAT16": "Float16",
    "BFLOAT16": "BFloat16", "FLOAT32": "Float32", "FLOAT64": "Float64", "TFLOAT32": "TFloat32",
    "16U4_ALIGN8B": "Float4E2M1FN", "16U6_ALIGN16B": "Float6E2M3FN",
}  # fmt: skip


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split()]


def question(row: dict[str, str]) -> Question:
    """The map of a recorded dump, in the DSL's terms."""
    bits = DATA_TYPES[row["data_type"]].bits
    parts = SWIZZLE_MODES[row["swizzle"]].parts
    job: dict[str, Any] = {
        "element": ELEMENTS[row["data_type"]],
        "address": int(row["address"], 16),
        "dims": numbers(row["dims"]),
        "strides": [1, *(stride * 8 // bits for stride in numbers(row["strides"]))],
        "swizzle": [parts[0].bits, parts[0].base, 3 if parts[0].base == 4 else parts[0].shift] if parts else [0, 4, 3],
    }
    if row["pixels"]:
        job |= {"pixels": int(row["pixels"]), "channels": int(row["channels"]), "steps": numbers(row["every"])[1:-1]}
        job |= {"lower": numbers(row["lower"]), "upper": numbers(row["upper"])}
    else:
        job["box"] = numbers(row["box"])
    return Question(job)


def test_bytes_of_tensor_maps(tmp_path: Path) -> None:
    """Every map of the table is built again, byte for byte as recorded, and as `TensorMap.encode` builds it but for bit 65."""
    rows = list(csv.DictReader(DUMPS.read_text().splitlines()))
    answers = ask(PROJECT, SCRIPT, [question(row) for row in rows], tmp_path)
    compared = 0
    for row, answer in zip(rows, answers, strict=True):
        theirs = np.asarray(answer["bytes"], np.uint8).tobytes()
        assert theirs == b"".join(int(word, 16).to_bytes(4, "little") for word in row["words"].split()), row["name"]
        ours = tcsim.TensorMap.decode(theirs).encode(tcsim.TensorMap.address_of(theirs), row["allocation"])  # type: ignore[arg-type]
        own = int.from_bytes(ours[:64], "little") | 1 << 65  # which the DSL sets and a driver does not
        assert own.to_bytes(64, "little") == theirs, row["name"]
        compared += len(theirs)
    assert compared == 29 * 64
