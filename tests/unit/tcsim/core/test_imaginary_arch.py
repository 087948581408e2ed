"""A chip that does not exist is one entry in the table of archs: every instruction works on it, and nothing counts as known of it.

The entry stands in the table of a second process, which asks each row of each family about the chip: once as one of which
nothing is known, so that its relative stands in, and once as one whose manual was read, so that the families' own rules are asked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
TABLE = "\n)  # fmt: skip\n\nARCHS"  # the end of the table in tcsim/core/targets.py
ENTRY = """
    Arch("sm_130", "Imaginary", "nothing", "{relative}",
         (Target("sm_130", "9.9"), Target("sm_130f", "9.9"), Target("sm_130a", "9.9")), "{source}"),"""

PROGRAM = '''
"""Reads the table of archs with one entry more, then asks every row of every family about it. Prints JSON."""
import collections, dataclasses, importlib.abc, importlib.machinery, json, sys

NAME, (path, old, new, relative) = "tcsim.core.targets", sys.argv[1:]

class WithOneMore(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        source = open(path, encoding="utf-8").read()
        assert source.count(old) == 1, "the table of archs has changed its form"
        return compile(source.replace(old, new + old), path, "exec")

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, where, target=None):
        if name == NAME:
            return importlib.machinery.ModuleSpec(name, WithOneMore(name, path), origin=path)

sys.meta_path.insert(0, Finder())
import tcsim
from tcsim import catalog
from tcsim.core.targets import ARCHS, accepting, since
from tcsim.descriptors.forms import form_of
from tcsim.memory import mbarrier_object

arch, targets = accepting("sm_130")
said = {"number": arch.number, "targets": targets, "since": since("sm_121"), "public": "sm_130" in tcsim.ARCHS}
near = {target.name for target in ARCHS[relative].targets}
counts, levels, failures = collections.Counter(), collections.Counter(), {}

def ask(row, family, what):
    """One row on the arch: its lowering, its evidence, and the object that executes it."""
    counts[what] += 1
    try:
        if what == "its own":
            made = tcsim.instruction(row.mnemonic, "sm_130")
        else:
            made = family.instruction(row, arch, tuple(t for t in targets if t in row.targets))
        levels[made.evidence.level] += 1
        for shown in (made.evidence, family.evidence(row, arch)):
            assert shown.level == "inferred" and relative in shown.source if not arch.source else \
                shown.level in ("inferred", "literature"), shown
        assert made.lowering is not None and made.arch.name == "sm_130"
        if not arch.source and set(row.targets) & near:
            assert repr(made.lowering) == repr(family.lowering(row, ARCHS[relative]))
    except Exception as error:
        failures.setdefault(f"{family.name} ({what})", f"{row.mnemonic}: {type(error).__name__}: {error}")

def everywhere(row):
    """The row as if the assembler took it on the arch too, in every form."""
    forms = tuple(dataclasses.replace(form, targets=(*form.targets, *targets)) for form in row.forms)
    return dataclasses.replace(row, targets=(*row.targets, *targets), forms=forms)

for row in catalog.rows().values():
    family = catalog.family(row.family)
    if row.dropped:
        continue
    if set(row.targets) & set(targets):
        ask(row, family, "its own")
    elif set(row.targets) & near:
        ask(everywhere(row), family, "of its relative")
    else:  # the assembler might take anything there
        ask(everywhere(row), family, "of neither")

barrier = mbarrier_object.decode_barrier(0, "sm_130")
said["barrier"] = sorted({field.evidence.level for field in barrier.fields})
try:
    said["form"] = form_of("sm_130")[0]
except tcsim.TcsimError as error:
    said["form"] = str(error)
print(json.dumps(said | {"counts": counts, "levels": levels, "failures": failures}))
'''


def with_imaginary_arch(relative: str, source: str) -> dict[str, Any]:
    """What the program says of an arch sm_130 with a relative, and a manual that was read of it, or none."""
    path = ROOT / "tcsim" / "core" / "targets.py"
    entry = ENTRY.format(relative=relative, source=source)
    command = [sys.executable, "-c", PROGRAM, str(path), TABLE, entry, relative]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("source", ["", "PTX ISA 9.9"])
@pytest.mark.parametrize(("relative", "form"), [("sm_120", "sm_130 has no matrix descriptors"), ("sm_100", "sm_100")])
def test_an_imaginary_arch_is_one_entry(relative: str, form: str, source: str) -> None:
    """Its targets belong to every open-ended list, each row has a lowering there, and none of it counts as measured."""
    said = with_imaginary_arch(relative, source)
    own = ["sm_130", "sm_130f", "sm_130a"]
    assert (said["number"], said["targets"], said["public"]) == (130, own, True)
    assert said["since"] == ["sm_121", "sm_121f", "sm_121a", *own]
    assert source or said["barrier"] == ["inferred"]
    assert said["form"].startswith(form)
    assert not said["failures"], "\n".join(f"{family}: {why}" for family, why in said["failures"].items())
    assert set(said["levels"]) <= ({"inferred", "literature"} if source else {"inferred"})
    assert said["counts"]["its own"] > 1500
    assert said["counts"]["of its relative"] > (0 if relative == "sm_120" else 500)
