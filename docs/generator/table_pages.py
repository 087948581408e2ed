"""The pages of docs/reference/tables: what is data, with the words that a reader needs to read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from generator import (
    campaign_tables,
    corpora_tables,
    counter_tables,
    diagnosis_tables,
    generation_tables,
    import_graph,
    measured_speeds,
    mutant_tables,
    suite_tables,
    tensor_map_tables,
)
from generator.conversion_tables import conversions
from generator.engine_tables import engines
from generator.hazard_tables import hazards
from generator.markdown import NOTICE, arch_ranges, code, table
from generator.numerics_tables import lowerings
from generator.recorded import recorded
from generator.special_tables import special_functions
from tcsim.descriptors.instruction import bit_table

FOLDER = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Part:
    """A table under a heading; without a heading, under the page's title."""

    title: str
    table: Callable[[], str]
    text: str = ""

    def lines(self) -> str:
        """The part in Markdown."""
        heading = f"## {self.title}" if self.title else ""
        return "\n\n".join(text for text in (heading, self.text, self.table()) if text)


@dataclass(frozen=True)
class TablePage:
    """A page of tables."""

    title: str
    text: str
    parts: tuple[Part, ...]

    def markdown(self) -> str:
        """The whole page."""
        return "\n\n".join([NOTICE, f"# {self.title}", self.text, *(part.lines() for part in self.parts)]) + "\n"


def families() -> str:
    """The families, with links from docs/reference/tables."""
    return suite_tables.families().replace("](reference/", "](../")


def findings() -> str:
    """What the check named in other people's kernels, and what it is."""
    found = json.loads((FOLDER / "measurements" / "third-party-findings.json").read_text(encoding="utf-8"))
    return "\n\n".join(f"{title}:\n\n" + "\n".join(f"- {item}" for item in items) for title, items in found)


KINDS = (
    ("f16", "sm_100"),
    ("tf32", "sm_100"),
    ("f8f6f4", "sm_100"),
    ("i8", "sm_100"),
    ("mxf8f6f4", "sm_100"),
    ("mxf4", "sm_103"),
    ("ti16", "sm_107"),
    ("mxf4nvf4", "sm_107"),
)


def instruction_descriptors() -> str:
    """The bits of every kind of instruction descriptor."""
    return "\n\n".join(
        f"## kind::{kind} on {arch}\n\n```text\n" + "\n".join(bit_table(kind, arch)) + "\n```" for kind, arch in KINDS
    )


def without_a_mutant() -> str:
    """Families that no recording can hold, and what stands in."""
    rows = [
        (
            "fence, wgmma.sync, griddepcontrol, tcgen05.fence, tcgen05.wait",
            "a kernel without that fence or wait: the check must name the rule, and its twin with it must be clean",
            code("tests/hazards"),
        ),
        (
            "the seven of multimem",
            "ten wrong models, each contradicted by the independent model",
            code("tests/unit/tcsim/isa/test_multimem.py"),
        ),
    ]
    return table(("families", "mutants", "where"), rows)


TABLE_PAGES = {
    "campaigns": TablePage(
        "Campaigns: what an H200 answered",
        "[Campaigns](../../conformance.md#campaigns) compare 10^10 outputs of an instruction with the engine. From the ledger `docs/measurements/campaign.jsonl`, whose lines "
        "`python -m conformance.campaign verify docs/measurements/campaign.jsonl` checks on a CPU. Eight processes shared one GPU, so seconds are those of a share of it.",
        (Part("By family", campaign_tables.by_family), Part("By instruction", campaign_tables.campaign)),
    ),
    "conversions": TablePage(
        "All inputs of conversions and special functions",
        "The model's arithmetic, in integers, beside the instruction on a GPU. From the ledgers in `conformance/recordings/sm_90`; [how](../../conversions.md#what-was-compared-what-is-not-known).",
        (
            Part("Conversions", conversions, "`python -m conformance.conversions OUT`."),
            Part(
                "Special functions",
                special_functions,
                "`python -m conformance.special OUT`. The control is rcp with a bias that is 2 less; 104,832 inputs must be found wrong.",
            ),
        ),
    ),
    "corpora": TablePage(
        "Corpora: recorded launches, and other people's kernels",
        "[What they are for](../../corpora.md).",
        (
            Part("Recorded launches", corpora_tables.launches),
            Part(
                "PTX of others",
                corpora_tables.third_party,
                "Compiled with nvcc 13.0, Triton 3.9.0 and CuTe DSL 4.8.1 (2026-11-22). The last two columns count launches with small inputs of our own whose memory was compared with NumPy.",
            ),
            Part("What does not come out", corpora_tables.third_party_differences),
            Part("Launches under the check", recorded("third-party races")),
            Part("Findings of the check", findings, "Each error that was named was looked at in the source. From `docs/measurements/third-party-findings.json`, 2026-11-23."),
        ),
    ),
    "counters": TablePage(
        "Counters: rules and how exact they are",
        "What [`tcsim profile`](../../profile.md) counts, compared with Nsight Compute on an H200.",
        (
            Part(
                "Rules",
                counter_tables.rules,
                "Launches of one instruction each: of how many the rule gave the GPU's counter. A rule that gave all is exact.",
            ),
            Part(
                "Recorded launches",
                counter_tables.launches,
                "The [recorded launches](../../corpora.md), of the machine code that ptxas 13.0 made of them, with every counter that is not 0 there or here. `--machine`: accesses that ptxas removed "
                "are left out, those that it joined count as one wider access, and constants that ptxas moves through the tensor core count there. *Without doubts*: of launches with nothing that `doubts` names for the counter; *beside others*: "
                "the least part of the GPU's where only other accesses contend. `python -m tests.kernels.counters --machine` asks.",
            ),
            Part(
                "What differs",
                counter_tables.different,
                "With `--machine`. What is not in a row of `tcsim.ptx.counters.rules` is another reason: the order of threads, a loop that ptxas unrolled where lanes of a warp part, a function of the driver. "
                "A second run of all launches on the same GPU gave other numbers for 27 counters of a launch, 26 of them doubted or unknown; the other is shared loads of "
                "`gemm_sm70_wmma_naive_bf16_f32_mn_mn_128x128x64_sm_90`, 512 here and in the first run, 520 in the second.",
            ),
            Part(
                "Machine instructions",
                counter_tables.instructions,
                "How many warps execute each, by `--machine` and on an H200 (`inst_executed`). Without a number are loops that ptxas makes of one line, those that "
                "ask an mbarrier, and what it brings for values that are seldom.",
            ),
            Part(
                "The GEMM ladder",
                counter_tables.ladder,
                "The steps of the [ladder](../../gemm.md) at 2048 x 2048 x 1024 in f16: what `tcsim profile` says, and what Nsight Compute measured on an H200 with cold caches. *Times* is the measured time over the least one, *busiest* the "
                "unit with the largest part of its own peak, *warps wait for* the reason with the most cycles per instruction. `python -m tests.kernels.ladder` asks.",
            ),
        ),
    ),
    "diagnosis": TablePage(
        "Diagnosis: results by set and by kind",
        "How `tcsim.diagnose` judges simulated kernels with one mistake of a kind, or with none. [How diagnosis searches](../../diagnosis-search.md) says how the sets were made and how a report is judged. "
        "`python -m tests.evaluation.second_wrong_kernels --json FILE` asks, `python -m tests.evaluation.second_wrong_kernels.keep SET FILE` keeps what came out; of the first set, "
        "`python -m tests.evaluation.wrong_kernels --write` does both.",
        (
            Part(
                "By set",
                diagnosis_tables.by_set,
                "*First sight*: before anybody who works on the diagnosis had seen a report of the set. *Later*: after the reports had been read and the diagnosis was changed.",
            ),
            Part("Seeds that nobody had used", diagnosis_tables.unseen, "One case of each kind of all sets but the first."),
            Part("By writer", diagnosis_tables.writers, "The last run of each set whose kinds were kept. The counts of each kind are in `docs/measurements/diagnosis.json`."),
            Part("Kinds that are not always right and alone", diagnosis_tables.by_kind, "All others are."),
        ),
    ),
    "evidence": TablePage(
        "Evidence by arch and by family",
        "[What the levels mean](../../evidence.md#levels).",
        (
            Part("By arch", suite_tables.evidence_counts, "How many instructions of each arch have which level."),
            Part("By family", families),
        ),
    ),
    "gemm-speed": TablePage(
        "Speed of the GEMM kernels on an H200",
        "Each [kernel](../../gemm.md) is timed in turn with cuBLAS on the same operands, random normal numbers: *cold* with another set of operands each time, so that L2 holds nothing of them, *sustained* without a pause. Figures are "
        "medians of 30 samples (10 at 16384 of mma.sync and wmma); a ratio above 1 is faster than cuBLAS, with the quartiles of the paired ratios; the noise is cuBLAS against itself. Results are checked against the model before "
        "anything is timed. `python -m hwkernels.bench` measures; the files are in `docs/measurements/`.",
        (
            Part("The machine", measured_speeds.machine),
            Part(
                "Persistent, cold",
                lambda: measured_speeds.persistent("cold"),
                "![TFLOP/s and ratios by format and size](../../measurements/h200-formats.svg)\n\ncuBLAS's int8 product is a slow one here: ratios of 1.7 say more of it than of the kernel.",
            ),
            Part("Persistent, sustained", lambda: measured_speeds.persistent("sustained")),
            Part(
                "The ladder",
                lambda: measured_speeds.by_kernel("h200-ladder"),
                "![The ladder in f16](../../measurements/h200-ladder.svg)",
            ),
            Part(
                "mma.sync and wmma at 16384",
                lambda: measured_speeds.by_kernel("h200-large"),
                "In a profile `sm80_mma_multistage` has the tensor pipe active in 80 % of all cycles, `sm70_wmma_shared` has L2 at 90 % of its throughput.",
            ),
            Part(
                "2:4 sparse",
                lambda: measured_speeds.by_kernel("h200-sparse"),
                "Ratios are to the dense product of cuBLAS; `cusparselt` is torch's.",
            ),
            Part("Convolutions", recorded("convolutions")),
            Part("Machine code of a slot", recorded("machine code of a slot")),
        ),
    ),
    "generations": TablePage(
        "Instructions, steps and lowerings by arch",
        "[What changed from generation to generation](../../generations.md); [what a step is](../../numerics.md#1-the-fused-dot-add-step).",
        (
            Part(
                "What each one multiplies",
                lambda: table(*generation_tables.by_arch(arch_ranges)),
                "In parentheses: spellings. *Emulated* instructions run as tensor-core instructions of other inputs, *CUDA cores* as ordinary arithmetic.",
            ),
            Part(
                "How they round",
                lambda: table(*generation_tables.by_step(arch_ranges), (4,)),
                "Numbers of products with a comma are those of instructions with a shorter and a longer K. An f16 result is possible for tcgen05.mma too.",
            ),
            Part(
                "Lowerings",
                lowerings,
                "What dense mma.sync becomes: the shape with the largest K, without `.satfinite` and the rounding modifiers of f64. [All rows](../mma.sync.md).",
            ),
        ),
    ),
    "hazards": TablePage(
        "Hazards: every rule",
        "What [the check](../../hazards.md) can report: `tcsim.ptx.HAZARDS`.",
        (Part("", hazards),),
    ),
    "identify": TablePage(
        "What was identified and screened",
        "[How](../../identify.md).",
        (
            Part("Instructions of an H200", recorded("identified")),
            Part("Random machines", recorded("random machines")),
            Part("Screening", recorded("screened")),
        ),
    ),
    "input-classes": TablePage(
        "Input classes",
        "The inputs of [the conformance suite](../../conformance.md#input-classes), each made to catch particular mistakes.",
        (Part("", suite_tables.input_classes),),
    ),
    "instruction-descriptors": TablePage(
        "Instruction descriptors: the bits of every kind",
        "The 32 bits of [the instruction descriptor](../../descriptors.md#the-instruction-descriptor) of `tcgen05.mma`.",
        (Part("", instruction_descriptors),),
    ),
    "layers": TablePage(
        "Layers: what each module knows",
        "From the top; imports go down only ([architecture](../../architecture.md)).",
        (
            Part("", import_graph.layers_table),
            Part("The floors of tcsim.ptx", import_graph.floors_table),
        ),
    ),
    "mutants": TablePage(
        "Mutants of the model",
        "Each is the right model with one thing changed. For each recorded instruction, every mutant that applies to it must disagree with the recorded hardware results somewhere. [Why](../../conformance.md#mutants).",
        (
            Part("All", suite_tables.mutants),
            Part("By family", mutant_tables.named, "`python -m tests.evaluation.mutation.named`."),
            Part("Families without a named mutant", without_a_mutant, "They return nothing that a recording could hold, or no machine at hand runs them."),
        ),
    ),
    "mutants-of-the-source": TablePage(
        "Mutants of the source",
        "Made from the model's source, by syntax: a constant one higher, a condition reversed, an operator exchanged. `python -m tests.evaluation.mutation.run` imports each in a process of its own and holds it against recorded results "
        "of the families that run through the module, then against its examples and the tests that know it best. What behaves (the executor, diagnosis, explanation, engines, search, campaigns, vectors) has no recordings of instructions: "
        "three mutants of each module are held against tests alone, those that reach the line.",
        (
            Part("", mutant_tables.total),
            Part("By family", mutant_tables.by_family, "A mutant counts for all families that run through its module."),
            Part("By module", mutant_tables.by_module),
            Part("Survivors", mutant_tables.survivors),
        ),
    ),
    "oracles": TablePage(
        "Other implementations on files of vectors",
        "[How they were asked](../../vectors.md); [other projects as oracles](../../oracles.md).",
        (Part("Vectors", recorded("other implementations")),),
    ),
    "plans": TablePage(
        "Orders of summation: what was compared",
        "[What they are](../../explain.md).",
        (
            Part("Kernels explained", recorded("explained kernels")),
            Part("Held-out shapes", recorded("held-out plans")),
            Part("Kernels with an order of their own", recorded("kernel orders compared")),
            Part("Corrected rules", recorded("kernel orders, corrected rules")),
        ),
    ),
    "speed": TablePage(
        "Speed of the model",
        "How long the model takes, on the machines named. [Engines](../../engines.md) says what makes it faster.",
        (
            Part("The check", recorded("check cost")),
            Part("The check in batches", recorded("check in batches")),
            Part("Many blocks", recorded("batches")),
            Part("Kernels at real sizes", recorded("real sizes")),
            Part("Kernels without tensor cores", recorded("scalar kernels")),
            Part("Triton's tutorials", recorded("tutorials")),
            Part("Examples of CuTe DSL", recorded("cute examples")),
            Part("How it grows", recorded("growth")),
            Part("Single instructions", recorded("execute")),
            Part("Compiled loops", recorded("numba")),
            Part("On a GPU", recorded("gpu")),
            Part("Layers on a GPU", recorded("gpu layers")),
            Part(
                "Engines against each other",
                engines,
                "`python -m conformance.engines.three` on an H200: every arithmetic through NumPy, numba and every kernel of the GPU's engine, all outputs compared by bits; NumPy computes one row of 32. An arithmetic counts in each family "
                "that asks for it. From `docs/measurements/engines.json.xz`.",
            ),
            Part("Look-ups", recorded("look-ups")),
        ),
    ),
    "tensor-maps": TablePage(
        "Tensor maps: types and bits",
        "[What a tensor map is](../../tma.md), and how each bit is known.",
        (
            Part("Types", tensor_map_tables.tensor_types),
            Part("The 128 bytes", tensor_map_tables.tensor_map_bits),
        ),
    ),
    "torch": TablePage(
        "PyTorch: what was compared with an H200",
        "[What would my model return on another GPU?](../../torch.md)",
        (
            Part("Models", recorded("models")),
            Part("Training", recorded("training")),
            Part("Operations", recorded("operations")),
            Part("Gradients and optimizers", recorded("gradients")),
        ),
    ),
}  # fmt: skip
"""By the name of the page."""

BY_COMMAND = ("hazard-matrix", "layout-mistakes")
"""Pages of docs/reference/tables that the commands in their first lines write."""


def tables_index() -> str:
    """docs/reference/tables/README.md: every page by its title."""
    titles = {name: page.title for name, page in TABLE_PAGES.items()}
    for name in BY_COMMAND:
        text = (FOLDER / "reference" / "tables" / f"{name}.md").read_text(encoding="utf-8")
        titles[name] = text.partition("\n# ")[2].partition("\n")[0]
    lines = "\n".join(f"- [{title}]({name}.md)" for name, title in sorted(titles.items(), key=lambda item: item[1]))
    return f"{NOTICE}\n\n# Tables\n\nData and results, written by commands.\n\n{lines}\n"
