"""A set of vectors: a folder of files, and manifest.json, which says what each holds and its digest."""

from __future__ import annotations

import hashlib
import json
import re
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
from tcsim.core.array_files import open_file
from tcsim.core.errors import OperandError, listing, shortened
from tcsim.core.evidence import LEVELS
from tcsim.core.files import exclusive, replacing, write_file
from tcsim.core.texts import LARGEST, parsed_json

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
    stem = _stem(instruction.mnemonic, instruction.arch.name, order.idesc, name, order.seed)
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
            total.update(little(records["d"]))
    yield {"file": path.name, **about, "outputs": outputs, **_digests(path, []), "expected": total.hexdigest()}


def _stem(mnemonic: str, arch: str, idesc: int | None, name: str, seed: int) -> str:
    """What the files of a class are called, less a block's number and the end."""
    described = [f"{idesc:#x}"] if idesc is not None else []
    return ".".join(str(part) for part in (mnemonic.replace("::", "-"), arch, *described, name, seed))


def _archive(arrays: dict[str, Any]) -> bytes:
    """An .npz; NumPy writes no time into it."""
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def little(codes: Codes) -> bytes:
    """Codes as their digest takes them."""
    array = np.ascontiguousarray(codes)
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def _digests(path: Path, expected: list[Codes]) -> dict[str, str]:
    """SHA-256 of the file, and of the expected codes whatever the form."""
    total = hashlib.sha256()
    for codes in expected:
        total.update(little(codes))
    return {"sha256": digest_of(path), "expected": total.hexdigest()}


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Add entries to the manifest; those of the same files are replaced."""
    path, new = folder / MANIFEST, {entry["file"] for entry in entries}
    with exclusive(folder):
        old = _listed(path) if path.exists() else []
        files = sorted([entry for entry in old if entry["file"] not in new] + entries, key=lambda entry: entry["file"])
        write_file(path, json.dumps({"version": VERSION, "tcsim": tcsim.__version__, "files": files}, indent=1) + "\n")


def entries_of(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The files of a folder, or one of its files, with their entries. Each is checked against its digest, and each field against its order.

    Raises OperandError if there is no manifest, it says what no order gives, a file is missing or has changed.
    """
    folder = path if path.is_dir() else path.parent
    manifest = folder / MANIFEST
    if not manifest.exists():
        raise OperandError(
            f"vectors: {folder} has no {MANIFEST}; valid: a folder that tcsim vectors make wrote, or a file in it"
        )
    listed = [(folder / entry["file"], entry) for entry in _listed(manifest)]
    if not listed:
        raise OperandError(f"vectors: {manifest} lists no files: there is nothing to compare")
    found = [item for item in listed if path.is_dir() or item[0] == path]
    if not found:
        raise OperandError(
            f"vectors: {manifest} does not list {path.name}; valid: {listing(item[0].name for item in listed)}"
        )
    for file, entry in found:
        _check(entry, f"vectors: {manifest}: {file.name}")
        if not file.exists() or digest_of(file) != entry["sha256"]:
            raise OperandError(f"vectors: {file} is missing or is not the file that {MANIFEST} lists: make it again")
    return found


_TYPES: dict[str, tuple[type, ...]] = {
    "file": (str,), "mnemonic": (str,), "arch": (str,), "idesc": (str, type(None)), "class": (str,), "level": (int,), "seed": (int,),
    "form": (str,), "evidence": (str,), "fields": (list,), "outputs": (int,), "sha256": (str,), "expected": (str,),
}  # fmt: skip


def _listed(manifest: Path) -> list[dict[str, Any]]:
    """The entries of a manifest, each with all keys, of the right types, and of one file alone."""
    with open_file(manifest) as file:
        data = parsed_json(file.read(LARGEST + 1), f"vectors: {manifest}", LARGEST)
    if not isinstance(data, dict) or not isinstance(data.get("files"), list):
        raise OperandError(
            f"vectors: {manifest} is not a manifest; valid: an object with files, a list of files' entries"
        )
    if data.get("version", VERSION) != VERSION:
        raise OperandError(f"vectors: {manifest} has version {shortened(data['version'])}; valid: {VERSION}")
    seen: set[str] = set()
    for number, entry in enumerate(data["files"], 1):
        where = f"vectors: {manifest}: file {number} of the manifest"
        if not isinstance(entry, dict):
            raise OperandError(f"{where} is {shortened(entry)}; valid: an object")
        for key, types in _TYPES.items():
            if key not in entry:
                raise OperandError(f"{where} has no {key}")
            if type(entry[key]) not in types:
                raise OperandError(
                    f"{where}: {key} is {shortened(entry[key])}; valid: {' or '.join(own.__name__ for own in types)}"
                )
        name = entry["file"]
        if not name.isprintable() or Path(name).name != name:
            raise OperandError(f"{where}: file is {shortened(name)}; valid: a name without folders")
        if name in seen:
            raise OperandError(f"{where} is {name}, which is listed twice")
        seen.add(name)
    return list(data["files"])


def _check(entry: dict[str, Any], where: str) -> None:
    """Raise OperandError for an entry that no order gives."""

    def valid(key: str, right: bool, which: str) -> None:
        if not right:
            raise OperandError(f"{where}: {key} is {shortened(entry[key])}; valid: {which}")

    try:
        idesc = None if entry["idesc"] is None else int(entry["idesc"], 16)
        own = subject_of(entry)
    except ValueError as error:
        raise OperandError(f"{where}: {shortened(str(error), 400)}") from None
    instruction = own.instruction
    valid("mnemonic", entry["mnemonic"] == instruction.mnemonic, instruction.mnemonic)
    valid("arch", entry["arch"] == instruction.arch.name, instruction.arch.name)
    valid("level", entry["level"] in (1, 2), "1, 2")
    valid(
        "class",
        entry["class"] in own.classes(entry["level"]),
        f"at level {entry['level']} {listing(own.classes(entry['level']))}",
    )
    valid("seed", entry["seed"] >= 0, "integers from 0")
    valid("form", entry["form"] in forms.FORMS, listing(forms.FORMS))
    stem = _stem(entry["mnemonic"], entry["arch"], idesc, entry["class"], entry["seed"])
    block = r"\.[0-9]+" if entry["form"] == "npz" else ""
    named = re.fullmatch(re.escape(stem) + block + re.escape(forms.FORMS[entry["form"]]), entry["file"])
    if named is None:
        raise OperandError(f"{where}: its name is not that of its order, {stem}")
    fields = [field.as_dict() for field in own.fields]
    valid("fields", entry["fields"] == fields, shortened(fields, 300))
    evidence = instruction.evidence.level
    known = entry["evidence"] in list(LEVELS)[list(LEVELS).index(evidence) :]
    valid("evidence", known, f"{evidence}, as the registry says")
    valid("outputs", entry["outputs"] > 0, "integers from 1")


def fields_of(entry: dict[str, Any]) -> list[Field]:
    """The fields of a record."""
    return [Field(**field) for field in entry["fields"]]


def subject_of(entry: dict[str, Any]) -> Subject:
    """The instruction of an entry."""
    return subject(entry["mnemonic"], entry["arch"], None if entry["idesc"] is None else int(entry["idesc"], 16))
