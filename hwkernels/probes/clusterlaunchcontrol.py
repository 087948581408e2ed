"""Probes of clusterlaunchcontrol.

try_cancel: every block does its work, one word, and then asks for the work of a cluster that has not started, until there is none.
However many clusters are cancelled, all work is done in the end. Kernel parameters: numbers, result.

query_cancel: every thread reads an answer that it is given. Kernel parameters: response, result, and how many there are.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import BLOCK_THREADS, Array, Body, Plan, grid_of
from hwkernels.probes.images import CLUSTER_WAIT, LANES, checked, entry, pointer, wait
from tcsim.isa.clusterlaunchcontrol import DIMENSIONS, CancelRow

WORDS = 4
"""Words of an answer."""
FACTOR = 2654435761
"""The work of a block: its number times this, modulo 2**32."""


def blocks_of(row: CancelRow) -> int:
    """Blocks of a cluster."""
    return 2 if row.multicast else 1


def words_of(row: CancelRow) -> int:
    """Words that query_cancel stores of an answer."""
    return len(DIMENSIONS) if row.operation == "get_first_ctaid" and not row.dimension else 1


class LaunchCancellationBody(Body):
    """Work done by whoever gets it; what answers say."""

    def kernel(self, row: CancelRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        if row.operation == "try_cancel":
            return entry(name, ("numbers", "result"), _ask(row))
        text = "\n".join(f"    {line}" for line in _read(row))
        return (
            f"\n.visible .entry {name}(.param .u64 response, .param .u64 result, .param .u32 count)\n{{\n{text}\n}}\n"
        )

    def plan(self, row: CancelRow, inputs: dict[str, Array]) -> Plan:
        """numbers uint32 (samples, blocks) -> the same shape; or response uint32 (samples, 4) -> uint32 (samples, words).

        Raises ValueError for other shapes.
        """
        if row.operation == "try_cancel":
            blocks = blocks_of(row)
            shape = (len(inputs["numbers"]), blocks)
            return Plan(
                inputs=(checked("numbers", inputs["numbers"], shape, np.uint32),),
                output=(shape, np.dtype(np.uint32)),
                scalars=(),
                grid=(shape[0] * blocks, 1, 1),
                block=(LANES, 1, 1),
                cluster=(blocks, 1, 1),
            )
        samples = len(inputs["response"])
        return Plan(
            inputs=(checked("response", inputs["response"], (samples, WORDS), np.uint32),),
            output=((samples, words_of(row)), np.dtype(np.uint32)),
            scalars=(np.uint32(samples),),
            grid=grid_of(samples),
            block=(BLOCK_THREADS, 1, 1),
        )


BODY = LaunchCancellationBody()


def _ask(row: CancelRow) -> list[str]:
    (form,) = row.forms
    wide = "wide_" if form["address"].space == "generic" else ""
    own = form.statement(row.mnemonic, {"address": f"%{wide}answer", "barrier": f"%{wide}barrier"})
    meet = ["barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"]
    return [
        ".reg .pred %first, %asks, %got;",
        ".reg .u32 %lane, %block, %rank, %answer, %barrier, %phase, %number;",
        ".reg .u64 %wide_answer, %wide_barrier, %from, %to;",
        ".reg .b64 %half<2>;",
        ".reg .b128 %told;",
        ".shared .align 16 .b8 answer[16];",
        ".shared .align 8 .b64 barrier;",
        "mov.u32 %lane, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %rank, %cluster_ctarank;",
        "setp.eq.u32 %first, %lane, 0;",
        "setp.eq.and.u32 %asks, %rank, 0, %first;",
        "mov.u32 %answer, answer;",
        "mov.u32 %barrier, barrier;",
        *(
            line
            for name in ("answer", "barrier")
            for line in (f"cvt.u64.u32 %wide_{name}, %{name};", f"cvta.shared.u64 %wide_{name}, %wide_{name};")
        ),
        *(
            line
            for name, parameter in (("from", "numbers"), ("to", "result"))
            for line in (f"ld.param.u64 %{name}, [{parameter}];", f"cvta.to.global.u64 %{name}, %{name};")
        ),
        "@%first mbarrier.init.shared::cta.b64 [%barrier], 1;",
        "@%first fence.mbarrier_init.release.cluster;",
        "mov.u32 %phase, 0;",
        *meet,
        "WORK:",
        '.pragma "nounroll";',
        "{",
        ".reg .u64 %source, %target;",
        "mad.wide.u32 %source, %block, 4, %from;",
        "mad.wide.u32 %target, %block, 4, %to;",
        "@%first ld.global.u32 %number, [%source];",
        f"@%first mul.lo.u32 %number, %number, {FACTOR};",
        "@%first st.global.u32 [%target], %number;",
        "}",
        "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], 16;",
        f"@%asks {own}",
        *(
            line.replace(", 0;", ", %phase;") if "test_wait" in line else line
            for line in wait("%barrier", CLUSTER_WAIT)
        ),
        "ld.shared.v2.b64 {%half0, %half1}, [%answer];",
        "mov.b128 %told, {%half0, %half1};",
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %got, %told;",
        "@!%got bra LEAVE;",
        "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %block, %told;",
        "add.u32 %block, %block, %rank;",
        "xor.b32 %phase, %phase, 1;",
        "fence.proxy.async;",
        *meet,
        "bra.uni WORK;",
        "LEAVE:",
        "ret;",
    ]


def _read(row: CancelRow) -> list[str]:
    words = words_of(row)
    (form,) = row.forms
    results = {
        "is_canceled": "%yes",
        "get_first_ctaid": "%word0" if row.dimension else ("%word0", "%word1", "%word2", "_"),
    }
    own = [form.statement(row.mnemonic, {form.names[0]: results[row.operation], "response": "%told"})]
    own += ["selp.u32 %word0, 1, 0, %yes;"] if row.operation == "is_canceled" else []
    return [
        ".reg .pred %yes, %beyond;",
        ".reg .u32 %thread, %count, %word<4>;",
        ".reg .u32 %block, %threads;",
        ".reg .b64 %half<2>;",
        ".reg .b128 %told;",
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %threads, %ntid.x;",
        "mad.lo.u32 %thread, %block, %threads, %thread;",
        "ld.param.u32 %count, [count];",
        "setp.ge.u32 %beyond, %thread, %count;",
        "@%beyond exit;",
        *pointer("response", 4 * WORDS, "%thread"),
        *pointer("result", 4 * words, "%thread"),
        "ld.global.v2.b64 {%half0, %half1}, [%response];",
        "mov.b128 %told, {%half0, %half1};",
        *own,
        *(f"st.global.u32 [%result+{4 * place}], %word{place};" for place in range(words)),
        "ret;",
    ]


BODIES = {"clusterlaunchcontrol": BODY}
