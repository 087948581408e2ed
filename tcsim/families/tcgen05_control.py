"""tcgen05.alloc and its kin, commit, fence and wait: the rows the assembler accepts, and their machine code.

Sources: PTX ISA 9.4; ptxas 13.5.37 (targets, versions, SASS). An alloc or dealloc is a short routine around one or two
instructions on the SM's allocation mask; the number of columns may be an immediate or a register.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import MappingProxyType

from tcsim.evidence import Evidence
from tcsim.families.tcgen05_targets import FAMILY_TARGETS, SM_107
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch
from tcsim.tmem_control import Commit, Control, Ordering, control_of, managed

ALLOC, COMMIT, FENCE, WAIT = "tcgen05.alloc", "tcgen05.commit", "tcgen05.fence", "tcgen05.wait"
_NO_SHAPE = (0, 0, 0)


def _row(
    mnemonic: str, family: str, arithmetic: str, version: str, facts: object, targets: tuple[str, ...] = FAMILY_TARGETS,
    **modifiers: str,
) -> Row:  # fmt: skip
    return Row(
        mnemonic, family, _NO_SHAPE, MappingProxyType({}), targets, version, arithmetic,
        modifiers=MappingProxyType(modifiers), facts=facts,
    )  # fmt: skip


def _allocations() -> Iterator[Row]:
    for group, exclusive in product((1, 2), (False, True)):
        word, version = (".exclusive", "9.4") if exclusive else ("", "8.6")
        control = Control(group, exclusive)
        cta_group = f".cta_group::{group}"
        for space in ("", ".shared::cta"):
            yield _row(
                f"tcgen05.alloc{word}{cta_group}.sync.aligned{space}.b32", ALLOC, "alloc", version, control,
                cta_group=cta_group, exclusive=word, space=space,
            )  # fmt: skip
        yield _row(
            f"tcgen05.dealloc{word}{cta_group}.sync.aligned.b32", ALLOC, "dealloc", version, control,
            cta_group=cta_group, exclusive=word, space="",
        )  # fmt: skip
        if not exclusive:
            yield _row(
                f"tcgen05.relinquish_alloc_permit{cta_group}.sync.aligned", ALLOC, "relinquish_alloc_permit", "8.6", control,
                cta_group=cta_group, exclusive="", space="",
            )  # fmt: skip


def allocation_rows() -> tuple[Row, ...]:
    """tcgen05.alloc, tcgen05.dealloc and tcgen05.relinquish_alloc_permit."""
    return tuple(_allocations())


def allocation_opcodes(control: Control, word: str) -> tuple[tuple[str, int], ...]:
    """What an alloc, dealloc or relinquish_alloc_permit has of instructions on the SM's allocation mask."""
    pair = ".2CTA" if control.cta_group == 2 else ""
    align = "" if control.exclusive else ".ALIGN"
    opcodes = {
        "alloc": (f"UTCATOMSWS{pair}.FIND_AND_SET{align}", 2),  # tried at once, and again in the loop that waits
        "dealloc": ("UTCATOMSWS.AND", 1),
        "relinquish_alloc_permit": ("UVIRTCOUNT.DEALLOC.SMPOOL", 1),
    }
    return (opcodes[word],)


def allocation_lowering(row: Row, arch: Arch) -> Lowering:
    """What touches the allocation mask; the rest of the routine keeps a copy of it in shared memory."""
    opcodes = allocation_opcodes(control_of(row), row.arithmetic)
    return Lowering("split", (), opcodes, "with its copy of the mask in shared memory")


def allocation_evidence(row: Row, arch: Arch) -> Evidence:
    """The rules are the manual's; which columns an alloc finds is not."""
    if row.arithmetic == "alloc":
        return Evidence("inferred", "the opcode FIND_AND_SET.ALIGN: the lowest free columns aligned to their number")
    return Evidence(
        "literature", "PTX ISA 9.4, section tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit"
    )


def _commits() -> Iterator[Row]:
    masks = {"": 16, ".multicast::cluster": 16, ".multicast::cluster::16b": 16, ".multicast::cluster::32b": 32}
    for group, restrict, space, (multicast, bits) in product(
        (1, 2), ("", ".sync_restrict::shared::read::mma::a"), ("", ".shared::cluster"), masks.items()
    ):
        new = restrict or multicast.endswith("b")
        yield _row(
            f"{COMMIT}.cta_group::{group}.mbarrier::arrive::one{restrict}{space}{multicast}.b64",
            COMMIT,
            "arrive",
            "9.4" if new else "8.6",
            Control(group, multicast=bool(multicast), mask_bits=bits),
            SM_107 if restrict or bits == 32 else FAMILY_TARGETS,
            cta_group=f".cta_group::{group}",
            restrict=restrict,
            space=space,
            multicast=multicast,
        )


def commit_rows() -> tuple[Row, ...]:
    """tcgen05.commit."""
    return tuple(_commits())


def commit_lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction."""
    control = control_of(row)
    words = ["UTCBAR"] + ["2CTA"] * (control.cta_group == 2) + ["MULTICAST"] * control.multicast
    words += ["MMA_READ_SHM_A"] * bool(row.modifiers["restrict"])
    return Lowering("native", (), ((".".join(words), 1),))


def commit_evidence(row: Row, arch: Arch) -> Evidence:
    """The manual."""
    return Evidence("literature", "PTX ISA 9.4, section tcgen05.commit")


def fence_rows() -> tuple[Row, ...]:
    """tcgen05.fence."""
    return tuple(
        _row(f"{FENCE}::{side}_thread_sync", FENCE, "order", "8.6", None, side=side) for side in ("before", "after")
    )


def fence_lowering(row: Row, arch: Arch) -> Lowering:
    """Nothing of its own: it keeps the assembler from moving tcgen05 instructions across it."""
    return Lowering("native", (), (), "no instruction of its own")


def wait_rows() -> tuple[Row, ...]:
    """tcgen05.wait."""
    return tuple(
        _row(f"{WAIT}::{what}.sync.aligned", WAIT, "completion", "8.6", None, what=what) for what in ("ld", "st")
    )


def wait_lowering(row: Row, arch: Arch) -> Lowering:
    """For stores a fence; for loads the scoreboard of their registers."""
    if row.modifiers["what"] == "st":
        return Lowering("native", (), (("FENCE.VIEW.ASYNC.T", 1),))
    return Lowering("native", (), (), "no instruction of its own: the registers' scoreboard")


def order_evidence(row: Row, arch: Arch) -> Evidence:
    """The manual."""
    return Evidence("literature", f"PTX ISA 9.4, section {row.family}")


ALLOC_FAMILY = Family(
    ALLOC, allocation_rows, allocation_lowering, allocation_evidence, managed, "none: it manages Tensor Memory"
)
COMMIT_FAMILY = Family(COMMIT, commit_rows, commit_lowering, commit_evidence, Commit, "none: it arrives at mbarriers")
FENCE_FAMILY = Family(FENCE, fence_rows, fence_lowering, order_evidence, Ordering, "none: it orders")
WAIT_FAMILY = Family(WAIT, wait_rows, wait_lowering, order_evidence, Ordering, "none: it waits")
