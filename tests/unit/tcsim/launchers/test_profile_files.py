"""Earlier answers of `tcsim profile` that are something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcsim.core.errors import OperandError
from tcsim.launchers.profile import compared


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, "1" * 100_000, "[]", "{", "7", '{"counters": []}', '{"counters": {"a": 1}}', '{"schema": 1, "counters": {"a": "b"}, "bound": null}',
        '{"schema": 1, "counters": {}, "bound": 7}', '{"schema": 1, "counters": {}, "bound": {"cycles": "x"}}', '{"schema": 1, "counters": 7, "bound": null}',
    ],
)  # fmt: skip
def test_what_is_no_profile_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "before.json").write_text(text)
    with pytest.raises(OperandError) as caught:
        compared({"kernel": "k", "schema": 1, "counters": {"a": 1}, "bound": None}, str(tmp_path / "before.json"))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
