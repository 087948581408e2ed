"""Vectors and answers that are forged, damaged or made to harm: each is refused in one sentence, or counted as wrong."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.vectors.forms import answers as read_answers
from conformance.vectors.sets import Order, entries_of, fields_of, make, subject_of
from conformance.vectors.verify import verify
from tcsim.core.errors import OperandError
from tests.unit.conformance.vectors.test_vectors import MMA, ORDERS, said

ROOT = Path(__file__).resolve().parents[4]
CONVERSION = Order("cvt.rn.f16.f32", "sm_90", classes=("edges",), outputs=300, form="jsonl")
"""Vectors whose answers have several values, zeros among them."""


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


def write(folder: Path, data: dict[str, Any]) -> None:
    (folder / "manifest.json").write_text(json.dumps(data))


def entry(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """A forgery of the first entry of a manifest."""

    def forge(folder: Path) -> None:
        data = manifest(folder)
        change(data["files"][0])
        (folder / "manifest.json").write_text(json.dumps(data))

    return forge


def whole(text: str | bytes) -> Callable[[Path], None]:
    """A forgery of all of a manifest."""
    data = text if isinstance(text, bytes) else text.encode()
    return lambda folder: (folder / "manifest.json").write_bytes(data) and None


def contents(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    """A forgery of the lines of vectors, with the digest of the manifest made anew."""

    def forge(folder: Path) -> None:
        data = manifest(folder)
        path = folder / data["files"][0]["file"]
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
        data["files"][0]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(data))

    return forge


def other_results(lines: list[str]) -> list[str]:
    """Every expected result with its lowest bit flipped."""
    rows = [json.loads(line) for line in lines]
    return [json.dumps(row | {"d": f"0x{int(row['d'], 16) ^ 1:04x}"}) for row in rows]


def twice(folder: Path) -> None:
    data = manifest(folder)
    write(folder, data | {"files": data["files"] * 2})


FORGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "not JSON": (whole("{"), "is not JSON"),
    "deep JSON": (whole("[" * 100_000), "is not JSON"),
    "not UTF-8": (whole(b"\xff"), "is not JSON"),
    "a list": (whole("[]"), "valid: an object with files"),
    "files of another kind": (whole('{"version": 1, "files": {}}'), "a list of files"),
    "no files": (whole('{"version": 1, "files": []}'), "lists no files"),
    "a number for a file": (whole('{"version": 1, "files": [7]}'), "file 1 of the manifest"),
    "another version": (lambda folder: write(folder, manifest(folder) | {"version": 99}), "version 99"),
    "the same file twice": (twice, "twice"),
    "a file outside": (entry(lambda own: own.update(file="../answers/x")), "a name without folders"),
    "an absolute file": (entry(lambda own: own.update(file="/etc/passwd")), "a name without folders"),
    "no name": (entry(lambda own: own.pop("file")), "has no file"),
    "more outputs": (entry(lambda own: own.update(outputs=10**15)), "outputs"),
    "outputs as text": (entry(lambda own: own.update(outputs="300")), "outputs"),
    "another instruction": (entry(lambda own: own.update(mnemonic="cvt.rz.f16.f32")), "cvt.rz.f16.f32"),
    "no instruction": (entry(lambda own: own.update(mnemonic="add.u32")), "add.u32"),
    "another arch": (entry(lambda own: own.update(arch="sm_100")), "name"),
    "an arch of a number": (entry(lambda own: own.update(arch=90)), "arch"),
    "a class that there is not": (entry(lambda own: own.update({"class": "nothing"})), "class"),
    "another class": (entry(lambda own: own.update({"class": "uniform"})), "name"),
    "another level": (entry(lambda own: own.update(level=2)), "level"),
    "another seed": (entry(lambda own: own.update(seed=1)), "name"),
    "a seed below zero": (entry(lambda own: own.update(seed=-1)), "seed"),
    "another form": (entry(lambda own: own.update(form="hex")), "name"),
    "evidence that is better": (entry(lambda own: own.update(evidence="proved")), "evidence"),
    "fields of fewer digits": (entry(lambda own: own["fields"][0].update(digits=1)), "fields"),
    "no field d": (entry(lambda own: own.update(fields=own["fields"][1:])), "fields"),
    "a descriptor": (entry(lambda own: own.update(idesc="0x10")), "descriptor"),
    "another digest": (entry(lambda own: own.update(sha256="0" * 64)), "make it again"),
    "another digest of results": (entry(lambda own: own.update(expected="0" * 64)), "expected"),
    "other results": (contents(other_results), "the model"),
    "a line fewer": (contents(lambda lines: lines[:-1]), "outputs"),
    "a line that is not JSON": (contents(lambda lines: [*lines[:6], "{", *lines[7:]]), "line 7"),
    "a line of a list": (contents(lambda lines: [*lines[:6], "[]", *lines[7:]]), "line 7"),
    "a line of large numbers": (contents(lambda lines: [*lines[:6], '{"d": "0xfffff", "a": "0x0"}', *lines[7:]]), "line 7"),
    "a line of numbers": (contents(lambda lines: [*lines[:6], '{"d": 1, "a": 2}', *lines[7:]]), "line 7"),
    "ids in another order": (contents(lambda lines: [lines[1], lines[0], *lines[2:]]), "id"),
}  # fmt: skip
"""What is done to a folder of vectors, and a word of the sentence that refuses it."""


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(OperandError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text and len(text) < 900, text
    return text


@pytest.mark.parametrize("name", FORGED)
def test_forged_vectors_are_refused(name: str, tmp_path: Path) -> None:
    make(tmp_path / "v", CONVERSION)
    own = said(tmp_path / "v")
    assert verify(tmp_path / "v", own).differ == 0
    forge, word = FORGED[name]
    forge(tmp_path / "v")
    assert word in refused(lambda: verify(tmp_path / "v", own))


@pytest.mark.parametrize("name", ORDERS)
def test_other_results_are_refused_for_every_kind_of_instruction(name: str, tmp_path: Path) -> None:
    """The expected results of one file with one bit flipped, and every digest made anew."""
    make(tmp_path / "v", ORDERS[name])
    data = manifest(tmp_path / "v")
    path = tmp_path / "v" / data["files"][0]["file"]
    with np.load(path) as file:
        arrays = dict(file)
    arrays["d"].view(np.uint8).reshape(-1)[arrays["d"].itemsize * 3] ^= 1
    np.savez(path, **arrays)
    data["files"][0] |= {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "expected": hashlib.sha256(arrays["d"].tobytes()).hexdigest(),
    }
    (tmp_path / "v" / "manifest.json").write_text(json.dumps(data))
    assert "output 3 is" in refused(lambda: verify(tmp_path / "v", said(tmp_path / "v")))


def lines(text: str | bytes, end: str = ".txt") -> Callable[[Path, Path], None]:
    """Answers of a text."""

    def forge(vectors: Path, path: Path) -> None:
        path.unlink()
        path.with_suffix(end).write_bytes(text if isinstance(text, bytes) else text.encode())

    return forge


def changed(change: Callable[[list[str]], list[str]]) -> Callable[[Path, Path], None]:
    """Answers with lines changed."""
    return lambda vectors, path: path.write_text("\n".join(change(path.read_text().splitlines())) + "\n") and None


def archive(member: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("d.npy", member)
    return buffer.getvalue()


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


def linked(link: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    """Answers that are the vectors themselves."""

    def forge(vectors: Path, path: Path) -> None:
        path.unlink()
        link(vectors, path.with_suffix(vectors.suffix))

    return forge


def as_json(change: Callable[[int, str], Any]) -> Callable[[Path, Path], None]:
    """Answers as lines of JSON."""

    def forge(vectors: Path, path: Path) -> None:
        rows = [json.dumps(change(place, text)) for place, text in enumerate(path.read_text().splitlines())]
        path.unlink()
        path.with_suffix(".jsonl").write_text("\n".join(rows) + "\n")

    return forge


ANSWERS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a link to the vectors": (linked(lambda vectors, path: path.symlink_to(vectors)), "the vectors themselves"),
    "a second name of the vectors": (linked(lambda vectors, path: os.link(vectors, path)), "the vectors themselves"),
    "a copy of the vectors": (linked(lambda vectors, path: path.write_bytes(vectors.read_bytes()) and None), "the vectors themselves"),
    "two files of them": (lambda vectors, path: path.with_suffix(".jsonl").write_text('{"d": "0"}\n' * 300) and None, "two files of answers"),
    "a key twice": (lines('{"d": "0", "d": "1"}\n' * 300, ".jsonl"), "twice in one object"),
    "more than 64 bits": (changed(lambda own: ["1" * 17, *own[1:]]), "line 1: answer 0"),
    "thousands of digits": (changed(lambda own: [*own[:4], "f" * 60_000, *own[5:]]), "line 5: answer 4"),
    "a long line": (changed(lambda own: ["f" * 100_000, *own]), "more than 65536 characters"),
    "not UTF-8": (lines(b"\xff\xfe\n"), "line 1"),
    "an empty file": (lines(""), "0 answers"),
    "one fewer": (changed(lambda own: own[:-1]), "299 answers"),
    "one more": (changed(lambda own: [*own, "0"]), "more answers"),
    "deep JSON": (lines("{" * 60_000, ".jsonl"), "is not JSON"),
    "100,000 digits": (lines('{"d": ' + "9" * 60_000 + "}", ".jsonl"), "is not JSON"),
    "not JSON": (lines('{"d": }', ".jsonl"), "is not JSON"),
    "ids in another order": (as_json(lambda place, text: {"id": place ^ 1, "d": text}), "has id 1"),
    "ids from one": (as_json(lambda place, text: {"id": place + 1, "d": text}), "has id 1"),
    "an id of text": (as_json(lambda place, text: {"id": str(place), "d": text}), "has id '0'"),
    "an id of truth": (as_json(lambda place, text: {"id": place == 1, "d": text}), "has id False"),
    "no d": (as_json(lambda place, text: {"e": text}), "valid: a hexadecimal number"),
    "garbage": (lines(b"PK\3\4garbage", ".npz"), "damaged"),
    "a pickled object": (lines(archive(npy(np.array([{}], object))), ".npz"), "descr"),
    "no array d": (lines(archive(npy([1])).replace(b"d.npy", b"e.npy"), ".npz"), "holds e"),
    "complex numbers": (lines(npy(np.zeros(300, complex)), ".npy"), "64 bits"),
    "a bomb of zeros": (lines(archive(npy(np.zeros(1 << 27, np.uint32))[: 1 << 29]), ".npz"), "more than 268435456 bytes"),
}  # fmt: skip
"""What is done to right answers, and a word of the sentence that refuses them."""


@pytest.mark.parametrize("name", ANSWERS)
def test_forged_answers_are_refused(name: str, tmp_path: Path) -> None:
    make(tmp_path / "v", CONVERSION)
    own = said(tmp_path / "v")
    (vectors,) = (tmp_path / "v").glob("*.jsonl")
    forge, word = ANSWERS[name]
    forge(vectors, next(own.iterdir()))
    assert word in refused(lambda: verify(tmp_path / "v", own))
    if "vectors" in name:
        assert word in refused(lambda: verify(vectors, next(own.iterdir())))


def test_a_folder_is_not_its_own_answers(tmp_path: Path) -> None:
    for form in ("npz", "jsonl", "hex"):
        make(tmp_path / form, Order(MMA, "sm_90", classes=("normal",), outputs=200, form=form))
        (tmp_path / f"{form}.link").symlink_to(tmp_path / form)
        for answers in (tmp_path / form, tmp_path / f"{form}.link"):
            refused(lambda form=form, answers=answers: verify(tmp_path / form, answers))  # type: ignore[misc]


def test_what_is_unknown_is_wrong_where_zero_is_expected(tmp_path: Path) -> None:
    make(tmp_path / "v", CONVERSION)
    own = said(tmp_path / "v")
    path = next(own.iterdir())
    texts = path.read_text().splitlines()
    zeros = [place for place, text in enumerate(texts) if int(text, 16) == 0]
    assert zeros
    for digits in ("x", "Z", "xxxx", "0x0z", "0_x"):
        path.write_text("\n".join(digits if place in zeros else text for place, text in enumerate(texts)) + "\n")
        found = verify(tmp_path / "v", own)
        assert found.differ == len(zeros) and [kind.kind for kind in found.kinds] == ["unknown"]
        assert {wrong.got for wrong in found.first} == {"x"}


def test_ids_that_count_up_are_taken(tmp_path: Path) -> None:
    make(tmp_path / "v", CONVERSION)
    own = said(tmp_path / "v")
    (vectors,) = (tmp_path / "v").glob("*.jsonl")
    as_json(lambda place, text: {"id": place, "d": f"0x{text}"})(vectors, next(own.iterdir()))
    assert verify(tmp_path / "v", own).differ == 0
    codes, known = next(read_answers(next(own.iterdir())))
    assert len(codes) == 300 and known.all()


def test_more_is_added_to_a_folder_and_the_same_is_replaced(tmp_path: Path) -> None:
    orders = [CONVERSION, Order(MMA, "sm_90", classes=("normal",), outputs=200, form="hex"), CONVERSION]
    seen = []
    for order in orders:
        make(tmp_path / "v", order)
        seen.append([own["file"] for own in manifest(tmp_path / "v")["files"]])
    assert [len(names) for names in seen] == [1, 2, 2] and seen[1] == seen[2] == sorted(seen[1])
    assert verify(tmp_path / "v", said(tmp_path / "v")).files == 2
    for path, own in entries_of(tmp_path / "v"):
        assert path.name == own["file"] and fields_of(own) == list(subject_of(own).fields)


def test_makers_side_by_side_lose_nothing(tmp_path: Path) -> None:
    """Five processes that make into one folder at once: all files are listed, none is cut."""
    code = (
        "import sys; from pathlib import Path; from conformance.vectors.sets import Order, make\n"
        "for seed in range(8):\n"
        "    make(Path(sys.argv[1]), Order('cvt.rn.f16.f32', 'sm_90', classes=('edges',), outputs=20, seed=8 * int(sys.argv[2]) + seed))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "v"), str(number)], env=environment)
        for number in range(5)
    ]
    assert [process.wait() for process in processes] == [0] * 5
    assert len(entries_of(tmp_path / "v")) == 40
