"""mmasim's answers to vectors: `python tests/oracles/vectors_mmasim.py VECTORS ANSWERS`, where mmasim, PyTorch and NumPy are installed.

VECTORS is a folder of .npz files that `tcsim vectors make` wrote; a file of answers is written for each that mmasim has a model for.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from ask_mmasim import KNOWN, answer

CHIPS = {
    "sm_70": "Volta",
    "sm_75": "Turing",
    "sm_80": "Ampere",
    "sm_89": "Ada Lovelace",
    "sm_90": "Hopper",
    "sm_100": "Blackwell",
    "sm_120": "RTX Blackwell",
}


SCALED = re.compile(
    r"mma\.sync\.aligned\.(kind::\w+)\.block_scale(?:\.scale_vec::(\d)X)?\.(m16n8k(\d+))\.row\.col\.(.*)"
)


def model_of(mnemonic: str, chip: str) -> tuple[str, str] | None:
    """mmasim's class and name of an instruction."""
    if said := SCALED.fullmatch(mnemonic):
        kind, vector, shape, k, types = said.groups()
        name, models = f"{shape}.{kind}.block{int(k) // int(vector or 1)}.{types}", ("MMABlockScale",)
    else:
        name = (
            mnemonic.removeprefix("wgmma.mma_async.sync.aligned.")
            .removeprefix("mma.sync.aligned.")
            .replace(".row.col", "")
        )
        models = ("MMA", "WGMMA")
    return next(((model, name) for model in models if name in KNOWN[model].get(chip, ())), None)


def main(vectors: Path, answers: Path) -> None:
    """Answer what can be answered."""
    answers.mkdir(parents=True, exist_ok=True)
    print("mmasim", version("mmasim"))
    missing = set()
    for entry in json.loads((vectors / "manifest.json").read_text())["files"]:
        chip = CHIPS.get(entry["arch"], "")
        found = model_of(entry["mnemonic"], chip)
        if found is None or entry["form"] != "npz":
            missing.add((entry["mnemonic"], entry["arch"]))
            continue
        model, name = found
        formats = {field["name"]: field["format"] for field in entry["fields"]}
        formats["scale"] = formats.get("scale_a", "")
        with np.load(vectors / entry["file"]) as file:
            given = {key: file[key] for key in file.files if key != "d"}
        job = {"do": "run", "model": model, "arch": chip, "name": name, "formats": formats}
        np.savez_compressed(answers / entry["file"], d=answer(job, given)["d"])
    for mnemonic, arch in sorted(missing):
        print("no model of", mnemonic, "on", arch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
