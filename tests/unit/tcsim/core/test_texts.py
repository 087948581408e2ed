"""TOML and JSON that nobody vouches for: what would cost much is refused before it is parsed, in one sentence."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tcsim.core.errors import OperandError
from tcsim.core.texts import DEEPEST, LONGEST_WORD, parsed_json, parsed_toml

TOML = {
    "a key of 50,000 parts": ".".join(["a"] * 50_000) + " = 1",
    "a key of quoted parts": ".".join(['"a"', "'b'"] * 25_000) + " = 1",
    "a table of 50,000 parts": "[" + ".".join(["a"] * 50_000) + "]",
    "parts with blanks": " . ".join(["a"] * 50_000) + " = 1",
    "arrays in arrays": "a = " + "[" * 50_000 + "]" * 50_000,
    "tables in tables": "a = " + "{a=" * 500 + "1" + "}" * 500,
    "an integer of 100,000 digits": "a = " + "9" * 100_000,
    "an integer with underscores": "a = " + "9_" * 50_000 + "9",
    "hexadecimal": "a = 0x" + "f" * 100_000,
    "binary": "a = 0b" + "1" * 100_000,
    "a float": "a = " + "9" * 100_000 + ".5e1",
    "quotes in between": 'b = "' + "[" * 100 + '\\""\na = ' + "9" * 5_000,
    "no end of a text": 'b = """' + "\\" * 10_001 + '""" \n',
    "not UTF-8": b"a = '\xff'",
    "not TOML": "a = ",
    "a key twice": "a = 1\na = 2",
}
JSON = {
    "lists in lists": "[" * 100_000 + "]" * 100_000,
    "objects in objects": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "100,000 digits": "1" * 100_000,
    "4,301 digits": "1" * 4_301,
    "a word": "N" * 100_000,
    "quotes in between": '{"a\\"": ' + "[" * 1_000,
    "not JSON": "{",
    "not UTF-8": b'"\xff"',
}


def as_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def refused(parse: Callable[[bytes, str], object], text: str | bytes, what: str) -> None:
    with pytest.raises(OperandError) as caught:
        parse(as_bytes(text), "some.file")
    said = str(caught.value)
    assert said.startswith(f"some.file is not {what}: ") and "\n" not in said and len(said) < 300, said


@pytest.mark.parametrize("name", TOML)
def test_hostile_toml_is_refused(name: str) -> None:
    refused(parsed_toml, TOML[name], "TOML")


@pytest.mark.parametrize("name", JSON)
def test_hostile_json_is_refused(name: str) -> None:
    refused(parsed_json, JSON[name], "JSON")


def test_what_is_within_the_limits_is_parsed() -> None:
    deep, long = ".".join(["a"] * DEEPEST), "x" * LONGEST_WORD
    found = parsed_toml(f"{deep} = 1\n[{long}]\nv = [1.5, {', '.join(['1.5'] * 5000)}]\n".encode(), "f")
    assert len(found[long]["v"]) == 5001
    quoted = f'a = "{"[" * 5000}"  # {"{" * 5000}\nb = \'{"9" * 100_000}\'\nc = """x\n\\"""{"." * 9000}"""\nd = \'\'\'{{[{"[" * 99}\'\'\'\n'
    assert len(parsed_toml(quoted.encode(), "f")["b"]) == 100_000
    assert parsed_json(b'{"a": "[[[[\\"{{{{", "b": [1, 2.5, null]}', "f") == {"a": '[[[["{{{{', "b": [1, 2.5, None]}
    assert parsed_json(b"[" * DEEPEST + b"]" * DEEPEST, "f")
    assert parsed_json(b'{"a": "' + b"9" * 100_000 + b'"}', "f")


def test_a_long_file_is_refused_unread() -> None:
    for parse in (parsed_toml, parsed_json):
        with pytest.raises(OperandError, match="more than 10 bytes"):
            parse(b"a" * 11, "some.file", 10)


def test_a_key_of_50_000_parts_costs_nothing(tmp_path: Path) -> None:
    """By `tcsim exec`, in a process that may have 4 GB and 20 seconds of a processor."""
    (tmp_path / "k.ptx").write_text(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n")
    (tmp_path / "l.toml").write_text("grid = 1\n" + TOML["a key of 50,000 parts"] + "\n")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 25))

    command = [sys.executable, "-m", "tcsim", "exec", "k.ptx", "--launch", "l.toml"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, preexec_fn=limited, env=None)
    assert run.returncode == 2 and run.stderr.count("\n") == 1 and "l.toml is not TOML: " in run.stderr, run.stderr[
        -500:
    ]
