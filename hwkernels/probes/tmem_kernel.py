"""PTX that kernels with Tensor Memory share: allocating, filling, reading back and freeing it, one warpgroup a CTA.

A kernel's threads are the four warps of one warpgroup; with `group` 2 the CTAs of a cluster of two run it as a pair. The
names of registers: %lane (of 128), %warp, %cta (of the grid), %taddr (the allocation), %mine (its first lane of this warp).
"""

from __future__ import annotations

from collections.abc import Sequence

THREADS = 128
LANES = 128
BLOCK_COLUMNS = 32  # that one st or ld of filling or reading back moves
SCAFFOLD = {
    1: {"UTCATOMSWS.FIND_AND_SET.ALIGN": 2, "UTCATOMSWS.AND": 1},
    2: {"UTCATOMSWS.2CTA.FIND_AND_SET.ALIGN": 2, "UTCATOMSWS.AND": 1},
}
"""Opcodes of one allocation and its release, by `.cta_group`: every kernel with Tensor Memory has them."""
FILL = {"STTM.x32": 1}
"""Opcodes of filling."""
READ = {"LDTM.x32": 1}
"""Opcodes of reading back."""
SIGNAL = {1: {"UTCBAR": 1}, 2: {"UTCBAR.2CTA.MULTICAST": 1}}
"""Opcodes of waiting for copies."""


def entry(name: str, parameters: Sequence[str], body: Sequence[str], group: int = 1, shared: str = "") -> str:
    """An entry point whose parameters are pointers."""
    head = [
        ".reg .pred %first, %again;",
        ".reg .u32 %lane, %warp, %cta, %row, %slot, %taddr, %mine, %at, %column, %end;",
        ".reg .u64 %here, %word;",
        f".reg .b32 %block<{BLOCK_COLUMNS}>;",
        ".shared .align 16 .b8 slot[16];",
        *(f".reg .u64 %at_{parameter};" for parameter in parameters),
        "mov.u32 %lane, %tid.x;",
        "shr.u32 %warp, %lane, 5;",
        "mov.u32 %cta, %ctaid.x;",
        f"mad.lo.u32 %row, %cta, {THREADS}, %lane;",
        "mov.u32 %slot, slot;",
        "setp.eq.u32 %first, %warp, 0;",
    ]
    for parameter in parameters:
        head += [
            f"ld.param.u64 %at_{parameter}, [{parameter}];",
            f"cvta.to.global.u64 %at_{parameter}, %at_{parameter};",
        ]
    text = "\n".join(line if line.endswith(":") else f"    {line}" for line in (*head, *body, "ret;"))
    listed = ", ".join(f".param .u64 {parameter}" for parameter in parameters)
    cluster = ".reqnctapercluster 2, 1, 1\n" if group == 2 else ""
    return f"\n{shared}.visible .entry {name}({listed})\n.maxntid {THREADS}, 1, 1\n{cluster}{{\n{text}\n}}\n"


def meet(group: int = 1) -> list[str]:
    """All threads wait for all, of a pair's both CTAs; what tcgen05 did before is seen after."""
    both = ["barrier.cluster.arrive.release.aligned;", "barrier.cluster.wait.acquire.aligned;"]
    return [
        "tcgen05.fence::before_thread_sync;",
        *(both if group == 2 else ["bar.sync 0;"]),
        "tcgen05.fence::after_thread_sync;",
    ]


def allocate(columns: int, group: int = 1) -> list[str]:
    """The first warp allocates, of a pair once both CTAs are there; everyone reads the address."""
    return [
        *(meet(2) if group == 2 else []),
        "@!%first bra allocated;",
        f"tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%slot], {columns};",
        "allocated:",
        "bar.sync 0;",
        "tcgen05.fence::after_thread_sync;",
        "ld.shared.b32 %taddr, [%slot];",
        "shl.b32 %mine, %warp, 21;",  # 32 lanes a warp, bits 31:16
        "add.u32 %mine, %mine, %taddr;",
    ]


def free(columns: int, group: int = 1) -> list[str]:
    """The first warp gives everything back once all are done."""
    return [
        *meet(group),
        "@!%first bra freed;",
        f"tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %taddr, {columns};",
        "freed:",
    ]


def _pass(parameter: str, columns: int, label: str, each: Sequence[str]) -> list[str]:
    """A loop over blocks of 32 columns: %here points to this thread's row of the array at the block, %at to the block.

    Its end goes through shared memory, so that the assembler cannot unroll it: machine code is counted.
    """
    return [
        f"st.volatile.shared.u32 [%slot+4], {columns};",
        "ld.volatile.shared.u32 %end, [%slot+4];",
        f"mul.wide.u32 %here, %row, {4 * columns};",
        f"add.u64 %here, %here, %at_{parameter};",
        "mov.u32 %at, %mine;",
        "mov.u32 %column, 0;",
        f"{label}:",
        *each,
        f"add.u64 %here, %here, {4 * BLOCK_COLUMNS};",
        f"add.u32 %at, %at, {BLOCK_COLUMNS};",
        f"add.u32 %column, %column, {BLOCK_COLUMNS};",
        "setp.lt.u32 %again, %column, %end;",
        f"@%again bra {label};",
    ]


def _block() -> str:
    return "{" + ", ".join(f"%block{i}" for i in range(BLOCK_COLUMNS)) + "}"


def _vectors(word: str) -> list[str]:
    lines = []
    for i in range(0, BLOCK_COLUMNS, 4):
        registers = "{" + ", ".join(f"%block{i + j}" for j in range(4)) + "}"
        place = f"[%here+{4 * i}]"
        lines.append(
            f"{word}.global.v4.b32 " + (f"{registers}, {place};" if word == "ld" else f"{place}, {registers};")
        )
    return lines


def fill(parameter: str, columns: int) -> list[str]:
    """Every cell from an array uint32 (CTAs, 128, columns)."""
    store = f"tcgen05.st.sync.aligned.32x32b.x{BLOCK_COLUMNS}.b32 [%at], {_block()};"
    return [*_pass(parameter, columns, "fill", [*_vectors("ld"), store]), "tcgen05.wait::st.sync.aligned;"]


def read_back(parameter: str, columns: int) -> list[str]:
    """Every cell to an array uint32 (CTAs, 128, columns)."""
    load = f"tcgen05.ld.sync.aligned.32x32b.x{BLOCK_COLUMNS}.b32 {_block()}, [%at];"
    return _pass(parameter, columns, "read", [load, "tcgen05.wait::ld.sync.aligned;", *_vectors("st")])


def barrier() -> list[str]:
    """An mbarrier at [%bar] that waits for one arrival."""
    return [
        ".shared .align 8 .b64 bar;",
        ".reg .u32 %bar;",
        ".reg .pred %one, %done;",
        ".reg .b16 %mask;",
        "mov.u32 %bar, bar;",
        "setp.eq.u32 %one, %lane, 0;",
        "@%one mbarrier.init.shared::cta.b64 [%bar], 1;",
        "fence.mbarrier_init.release.cluster;",
    ]


def signal_and_wait(group: int = 1) -> list[str]:
    """The issuing thread, in whose branch this begins, commits; then every thread waits for the barrier of its CTA."""
    if group == 1:
        commit = ["tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];"]
    else:
        commit = [
            "mov.b16 %mask, 3;",
            "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%bar], %mask;",
        ]
    return [
        *commit,
        "issued:",
        "mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0;",
        "@!%done bra issued;",
        "tcgen05.fence::after_thread_sync;",
    ]


def first_thread(group: int = 1) -> list[str]:
    """Everyone but the one thread that issues goes to `issued`; of a pair it is a thread of the even CTA."""
    lines = [".reg .u32 %rank;", ".reg .pred %other;", "setp.ne.u32 %other, %lane, 0;"]
    if group == 2:
        lines += ["mov.u32 %rank, %cluster_ctarank;", "or.b32 %rank, %rank, %lane;", "setp.ne.u32 %other, %rank, 0;"]
    return [*lines, "@%other bra issued;"]
