"""What `tcsim.inspection.generations` says of the generations is what the registry has."""

from __future__ import annotations

from collections import Counter

from tcsim import catalog
from tcsim.arithmetic.steps import ScaledDotAdd
from tcsim.arithmetic.units import UNITS
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.inspection.generations import generations, step_uses
from tcsim.isa.special.rows import FUNCTIONS
from tcsim.numbers.formats import FORMATS

NO_PRODUCTS = {"cvt", "ldmatrix", "movmatrix", "spcompress", "stmatrix", "wmma.load", "wmma.store"}


def test_the_multiplying_families_of_each_arch() -> None:
    """Counts are the registry's."""
    found = generations()
    assert tuple(item.arch for item in found) == tuple(ARCHS)
    for item in found:
        arch = ARCHS[item.arch]
        expected = Counter(
            row.family
            for row in catalog.on_arch(arch.name)
            if not row.dropped
            and row.family not in {*NO_PRODUCTS, *FUNCTIONS}
            and catalog.family(row.family).lowering(row, arch).steps
        )
        assert item.families == expected and len(expected) >= 2, item.arch
        assert all(list(users) == [name for name in FORMATS if name in users] for users in item.kinds.values())


def test_volta_and_hopper() -> None:
    """What everybody knows of them."""
    found = {item.arch: item.kinds for item in generations()}
    assert found["sm_70"]["native"] == {"f16": ("mma.sync",)}
    assert found["sm_90"]["emulated"]["e4m3"] == ("mma.sync", "mma.sp") and "wgmma" in found["sm_90"]["native"]["e4m3"]
    assert found["sm_90"]["cuda cores"] == {"f16": ("mma.sync m8n8k4",)}
    assert "e4m3" in found["sm_89"]["native"] and "e4m3" not in found["sm_86"]["native"]


def test_every_step_is_seen() -> None:
    """Each dot-add of each lowering has a line with its F, archs and number of products; each line has a lowering."""
    uses = step_uses()
    left = {(number, arch) for number, use in enumerate(uses) for arch in use.archs}
    compared = 0
    for row in catalog.rows().values():
        if row.dropped or row.family in NO_PRODUCTS:
            continue
        for arch in {TARGETS[target].arch for target in row.targets}:
            lowering = catalog.family(row.family).lowering(row, ARCHS[arch])
            for step in lowering.steps:
                if lowering.kind == "split" or not hasattr(step, "unit"):
                    continue
                fits = {
                    (number, arch)
                    for number, use in enumerate(uses)
                    if row.family in use.users
                    and arch in use.archs
                    and len(step.k) in use.products
                    and step.unit.fraction_bits == use.fraction_bits
                    and isinstance(step, ScaledDotAdd) == use.scaled
                    and step.unit.output in use.results
                }
                assert fits, (row.mnemonic, arch)
                left -= fits
                compared += 1
    assert compared > 3500 and not left


def test_every_unit_is_seen() -> None:
    """Each unit is among the steps of the arch that brought it."""
    bits = {(arch, use.fraction_bits) for use in step_uses() for arch in use.archs}
    assert {(f"sm_{unit.first}", unit.fraction_bits) for unit in UNITS} <= bits
