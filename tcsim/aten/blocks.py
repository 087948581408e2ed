"""How PyTorch's reduction kernel divides its work: threads, blocks, vectors (ReduceConfig), from the iteration alone."""

from __future__ import annotations

from dataclasses import dataclass

from tcsim.aten.iteration import Iteration

MULTIPROCESSORS = 132  # of an H200
THREADS_PER_MULTIPROCESSOR = 2048
MAX_THREADS = 512
WARP = 32
LEAST_TO_VECTORISE = 128


@dataclass(frozen=True)
class Division:
    """Who adds what: `width` threads along x, `height` along y, `blocks` of them share one output where the flag says so."""

    width: int
    height: int
    blocks: int
    x_reduces: bool
    y_reduces: bool
    vector: int  # elements of one load along the input; 0: none
    outputs: int  # outputs of one thread
    accumulators: int

    @property
    def step(self) -> int:
        """Threads that share one output."""
        return (self.width if self.x_reduces else 1) * (self.height if self.y_reduces else 1) * self.blocks


def _power(n: int) -> int:
    return 1 << (n.bit_length() - 1) if n else 1


def _output_vector(it: Iteration) -> int:
    vector = 4
    others = [s for d, s in enumerate(it.strides) if d != it.reduced]
    for n in (it.offset, it.shape[it.reduced], *others):
        while n % vector:
            vector //= 2
    return vector


def division(it: Iteration, accumulators: int, vector: int, multiprocessors: int = MULTIPROCESSORS) -> Division:
    """The division for an iteration; `accumulators` and `vector` are the kernel's (vt0 and the elements of one load).

    >>> from tcsim.aten.iteration import iteration
    >>> division(iteration((8, 1000), (1000, 1), (1,)), 4, 4)
    Division(width=64, height=8, blocks=1, x_reduces=True, y_reduces=False, vector=4, outputs=1, accumulators=4)
    """
    inputs, outputs = it.inputs, it.outputs
    dims = len(it.shape)
    fastest = dims == 0 or it.reduced == dims or it.strides[0] < it.strides[it.reduced]
    stride = 1 if dims == 0 else it.strides[0 if fastest else it.reduced]
    dim0, dim1 = (inputs, outputs) if fastest else (outputs, inputs)
    load, each = 0, 1
    if dims and stride == 1:
        if fastest and dim0 >= LEAST_TO_VECTORISE and it.reduced == 1:
            load = vector
            dim0 //= vector
        elif not fastest:
            each = _output_vector(it)
            dim0 //= each
    most = MAX_THREADS // each
    p0, p1 = min(_power(dim0), most), min(_power(dim1), most)
    width = min(p0, WARP)
    height = min(p1, most // width)
    width = min(p0, most // height)
    step = width if fastest else 1
    step_output = 1 if fastest else width
    per_thread = -(-inputs // step)
    y_reduces = per_thread >= min(height * 16, 256)
    if y_reduces:
        step *= height
    else:
        step_output *= height
    per_thread = -(-inputs // step)
    grid = -(-(outputs // each) // step_output)
    target = multiprocessors * (THREADS_PER_MULTIPROCESSOR // (width * height))
    blocks = 1
    if y_reduces and per_thread >= 256 and grid <= target:
        blocks = max(min(-(-target // grid), -(-per_thread // 16)), -(-per_thread // 256))
    return Division(width, height, blocks, fastest, y_reduces, load, each, accumulators)
