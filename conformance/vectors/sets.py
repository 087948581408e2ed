"""A set of vectors: a folder of files, and manifest.json, which says what each holds and its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

import tcsim
from conformance.stimuli.problem import Codes
from conformance.vectors import forms
from conformance.vectors.subjects import Field, Subject, check_classes, subject
from tcsim.core.errors import OperandError, listing
from tcsim.core.files import exclusive, replacing, write_file

MANIFEST = "manifest.json"
VERSION = 1


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    mnemonic: str
    arch: str
    idesc: int | None = None
    classes: tuple[str, ...] = ()  # all of the level, if none
    level: int = 1
    seed: int = 0
    outputs: int | None = None  # of a class; None: as many as the conformance suite has
    form: str = "npz"


def make(folder: Path, order: Order) -> list[dict[str, Any]]:
    """Write the files of an order into a folder and add them to its manifest; one entry a file.

    The same order and version give the same bytes. One block of outputs is in memory at a time; at level 2 all operands of a class.

    Raises OperandError for a class or a form that does not exist or does not apply.
    """
    if order.form not in forms.FORMS:
        raise OperandError(f"vectors: no form {order.form!r}; valid: {listing(forms.FORMS)}")
    own = subject(order.mnemonic, order.arch, order.idesc)
    names = check_classes(own, order.level, list(order.classes))
    if order.form != "npz" and not own.fields:
        raise OperandError(f"vectors: {own.instruction!r} has no records of one output each; valid: --form npz")
    folder.mkdir(parents=True, exist_ok=True)
    entries = [entry for name in names for entry in _files(folder, order, own, name)]
    _list(folder, entries)
    return entries


def _files(folder: Path, order: Order, own: Subject, name: str) -> Iterator[dict[str, Any]]:
    """One file of a class; of npz one for each block."""
    instruction = own.instruction
    stem = ".".join(
        str(part)
        for part in (
            instruction.mnemonic.replace("::", "-"),
            instruction.arch.name,
            *([f"{order.idesc:#x}"] if order.idesc is not None else []),
            name,
            order.seed,
        )
    )
    about: dict[str, Any] = {
        "mnemonic": instruction.mnemonic,
        "arch": instruction.arch.name,
        "idesc": None if order.idesc is None else f"{order.idesc:#x}",
        "class": name,
        "level": order.level,
        "seed": order.seed,
        "form": order.form,
        "evidence": instruction.evidence.level,
        "fields": [field.as_dict() for field in own.fields],
    }
    blocks = own.blocks(name, order.seed, order.outputs)
    if order.form == "npz":
        for turn, (operands, expected) in enumerate(blocks):
            path = folder / f"{stem}.{turn}.npz"
            write_file(path, _archive({**operands, "d": expected}))
            yield {"file": path.name, **about, "outputs": int(expected.size), **_digests(path, [expected])}
        return
    path, outputs, total = folder / (stem + forms.FORMS[order.form]), 0, hashlib.sha256()
    with replacing(path) as file:
        for operands, expected in blocks:
            records = own.as_records(operands, expected)
            lines = (
                forms.hex_lines(own.fields, records)
                if order.form == "hex"
                else forms.json_lines(own.fields, records, outputs)
            )
            file.write(lines)
            outputs += len(records["d"])
            total.update(_little(records["d"]))
    yield {"file": path.name, **about, "outputs": outputs, **_digests(path, []), "expected": total.hexdigest()}


def _archive(arrays: dict[str, Any]) -> bytes:
    """An .npz; NumPy writes no time into it."""
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _little(codes: Codes) -> bytes:
    array = np.ascontiguousarray(codes)
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def _digests(path: Path, expected: list[Codes]) -> dict[str, str]:
    """SHA-256 of the file, and of the expected codes whatever the form."""
    total = hashlib.sha256()
    for codes in expected:
        total.update(_little(codes))
    return {"sha256": _digest(path), "expected": total.hexdigest()}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Add entries to the manifest; those of the same files are replaced."""
    path, new = folder / MANIFEST, {entry["file"] for entry in entries}
    with exclusive(folder):
        old = json.loads(path.read_text())["files"] if path.exists() else []
        files = sorted([entry for entry in old if entry["file"] not in new] + entries, key=lambda entry: entry["file"])
        write_file(path, json.dumps({"version": VERSION, "tcsim": tcsim.__version__, "files": files}, indent=1) + "\n")


def entries_of(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The files of a folder, or one of its files, with their entries. Each is checked against its digest.

    Raises OperandError if there is no manifest, a file is missing or has changed.
    """
    folder = path if path.is_dir() else path.parent
    manifest = folder / MANIFEST
    if not manifest.exists():
        raise OperandError(
            f"vectors: {folder} has no {MANIFEST}; valid: a folder that tcsim vectors make wrote, or a file in it"
        )
    listed = [(folder / entry["file"], entry) for entry in json.loads(manifest.read_text())["files"]]
    found = [item for item in listed if path.is_dir() or item[0] == path]
    if not found:
        raise OperandError(
            f"vectors: {manifest} does not list {path.name}; valid: {listing(item[0].name for item in listed)}"
        )
    for file, entry in found:
        if not file.exists() or _digest(file) != entry["sha256"]:
            raise OperandError(f"vectors: {file} is missing or is not the file that {MANIFEST} lists: make it again")
    return found


def fields_of(entry: dict[str, Any]) -> list[Field]:
    """The fields of a record."""
    return [Field(**field) for field in entry["fields"]]


def subject_of(entry: dict[str, Any]) -> Subject:
    """The instruction of an entry."""
    return subject(entry["mnemonic"], entry["arch"], None if entry["idesc"] is None else int(entry["idesc"], 16))
