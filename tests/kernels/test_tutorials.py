"""What runs Triton's tutorials, as far as it needs neither Triton nor a GPU: smaller sizes, and addresses of another machine."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.launchers.recording import Buffer
from tests.kernels.tutorials.on_gpu import moved
from tests.kernels.tutorials.patches import TUTORIALS


def test_sizes_are_changed_and_benchmarks_left_out() -> None:
    """What a tutorial has besides stays as it is."""
    text = "size = 98432\nx = size\nbenchmark.run(print_data=True)\n"
    found = TUTORIALS["vector add"].patched(text)
    assert found.startswith("size = 4003\nx = size\nbenchmark\n") and "assert_close" in found


@pytest.mark.parametrize("name", TUTORIALS)
def test_another_version_is_refused(name: str) -> None:
    """Nothing runs with the large sizes because a line has changed."""
    with pytest.raises(ValueError, match=r"\.py: no line matches"):
        TUTORIALS[name].patched("x = 3\n")


def test_pointers_follow_their_buffers() -> None:
    """Of a parameter, of the first word of a tensor map, and into the middle; other numbers stay."""
    data = np.zeros(64, np.uint8)
    buffers = Buffer("a", 0x7000_0000_0000, data, data), Buffer("b", 0x7000_0000_1000, data, data)

    def there(*words: int) -> list[int]:
        given = np.array(words, np.uint64).tobytes()
        return np.frombuffer(moved(given, buffers, [0x200, 0x400]), np.uint64).tolist()

    assert there(0x7000_0000_0000) == [0x200] and there(0x7000_0000_103F, 7) == [0x43F, 7]
    assert there(0x7000_0000_0040) == [0x7000_0000_0040] and there(*[0x7000_0000_1000] + [5] * 15) == [0x400] + [5] * 15
    assert moved(b"\1\2\3\4", buffers, [0x200, 0x400]) == b"\1\2\3\4"
