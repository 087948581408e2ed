"""What the project writes goes through `tcsim.core.files`: aside, and renamed."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tcsim", "hwkernels", "conformance")
LEFT_OUT = {
    "tcsim/core/files.py": "it is the way",
    "tcsim/ptx/launch/processes.py": "a pipe to another process",
    "conformance/counters/live.py": "scratch in a temporary folder",
    "conformance/kernels/campaign.py": "a log that grows as a process runs",
    "conformance/kernels/freeze.py": "scratch in a temporary folder",
    "conformance/scalars/__main__.py": "a table that grows row by row",
    "conformance/stimuli/exchange.py": "a pipe to another process",
    "conformance/explain/record.py": "an archive and a log that grow case by case",
    "conformance/campaign/ledger.py": "lines that are appended whole",
    "hwkernels/device/toolchain.py": "scratch in a temporary folder",
    "hwkernels/device/sass.py": "scratch in a temporary folder",
}
"""Files that write in another way, and why."""


def writes(tree: ast.Module) -> list[int]:
    """The lines of calls that write to a path by themselves."""
    within = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
    aside = {
        id(call)
        for node in within
        if any("replacing(" in ast.unparse(item.context_expr) for item in node.items)
        for call in ast.walk(node)
    }
    return [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in aside and _writes(node)
    ]


def _writes(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    texts = [own.value for own in (*call.args, *(own.value for own in call.keywords)) if isinstance(own, ast.Constant)]
    if name.rpartition(".")[2] in ("write_text", "write_bytes"):
        return True
    if name in ("np.save", "np.savez", "np.savez_compressed"):
        return "buffer" not in ast.unparse(call.args[0]) and "packed" not in ast.unparse(call.args[0])
    opens = name.rpartition(".")[2] in ("open", "fdopen", "ZipFile")
    return (
        opens and "buffer" not in ast.unparse(call) and any(own in ("w", "wb", "wt", "x", "a", "ab") for own in texts)
    )


def test_every_file_is_written_aside() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): writes(ast.parse(path.read_text(encoding="utf-8")))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    assert len(found) > 600
    assert {name: lines for name, lines in found.items() if lines and name not in LEFT_OUT} == {}
    assert {name for name in LEFT_OUT if not found[name]} <= {"tcsim/core/files.py", "conformance/campaign/ledger.py"}


def test_what_writes_in_another_way_is_seen() -> None:
    for line in (
        "Path('x').write_text('')",
        "open('x', 'w')",
        "p.open(mode='wb')",
        "np.savez(path, a=a)",
        "ZipFile(p, 'w')",
    ):
        assert writes(ast.parse(line)) == [1]
        assert writes(ast.parse(f"with replacing(p) as file:\n    {line}")) == []
