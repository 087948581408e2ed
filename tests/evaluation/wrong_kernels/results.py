"""Kinds of mistakes with results: the K loop's count, splits, accumulators, epilogues, formats, metadata, scale factors; and kernels that are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from tcsim.numbers.codec import decode, encode
from tests.evaluation.wrong_kernels.cases import Kind, Plant, Scene
from tests.evaluation.wrong_kernels.kernel import A, B
from tests.evaluation.wrong_kernels.places import COUNTED, LINES, STORED

UNWRITTEN = "part of the output never written"
NARROW = "result passed through a narrower format"
FLOAT = ("mma.sync", "wgmma", "tcgen05", "sparse", "scaled")
DENSE = ("mma.sync", "wgmma", "tcgen05")
DEFAULT_C = frozenset({"accumulator ignored"})


def made_of(*names: str, half: tuple[str, ...] = (), **wrong: Any) -> Callable[[Scene], Plant | None]:
    """A kernel with fields changed; those that are functions of the scene are called."""

    def plant(scene: Scene) -> Plant | None:
        made = {}
        for name, value in wrong.items():
            made[name] = value.make(scene) if isinstance(value, Of) else value
            if made[name] is None:
                return None
        return Plant(scene.kernel(**made), frozenset(names), frozenset(half))

    return plant


def _stored(
    *names: str, half: tuple[str, ...] = (), lines: tuple[str, ...] = (), **wrong: Any
) -> Callable[[Scene], Plant | None]:
    """A store to another place, of c too or of the product alone; `lines` are names as good where the two cannot be told apart."""

    def plant(scene: Scene) -> Plant | None:
        apart = scene.pick(True, False)
        alike = lines if not apart or not scene.operands.c.any() else ()
        return made_of(*names, *alike, half=half, c_right=apart, **wrong)(scene)

    return plant


class Of:
    """A field that depends on the scene."""

    def __init__(self, make: Callable[[Scene], Any]) -> None:
        """A function of the scene."""
        self.make = make


def is_float(scene: Scene) -> bool:
    return scene.machine.formats["d"].kind == "float"


def _after(
    names: tuple[str, ...], change: Callable[[Scene, Any], Any], **other: Any
) -> Callable[[Scene], Plant | None]:
    """What an epilogue does to the values of the output."""

    def plant(scene: Scene) -> Plant | None:
        if not is_float(scene):
            return None

        def epilogue(d: Any) -> Any:
            return encode(change(scene, decode(d, "f32")), "f32")

        return Plant(scene.kernel(epilogue=epilogue, **other), frozenset(names))

    return plant


def _with_c(make: Callable[[Scene], Plant | None]) -> Callable[[Scene], Plant | None]:
    return lambda scene: make(scene) if scene.operands.c.any() else None


def _one_place(scene: Scene, kt: int) -> Callable[[int, int, int], Any]:
    return lambda y, x, count: [t for t in range(count) if (y, x, t) != (1, 1, kt)]


def _truncated(scene: Scene, values: Any) -> Any:
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _narrow(name: str) -> Callable[[Scene, Any], Any]:
    return lambda scene, values: decode(encode(values, name), name)


def _vector(scene: Scene, axis: int) -> Any:
    size = scene.shape[axis]
    values = scene.random.standard_normal(size)
    return values[:, None] if axis == 0 else values


def _shifted(x: str, by: int, axis: int) -> Callable[[Any], Any]:
    return lambda d: np.roll(d, by, axis)


def _cut_to_bf16(scene: Scene) -> Plant | None:
    """The output tensor itself is bf16, and cut."""
    if not is_float(scene):
        return None
    names = frozenset({"result truncated to a narrower format"})
    return Plant(
        scene.kernel(), names, observed=lambda d: (d >> np.uint32(16)).astype(np.uint16).view(ml_dtypes.bfloat16)
    )


def _positions(change: Callable[[Scene], Any]) -> Callable[[Scene], Plant | None]:
    names = frozenset({"metadata of another row", "metadata of another K block"})

    def plant(scene: Scene) -> Plant | None:
        side = change(scene)
        return None if side is None else Plant(scene.kernel(positions=side), names)

    return plant


def _scales(x: str, change: Callable[[Scene, Any], Any]) -> Callable[[Scene], Plant | None]:
    lines = "row" if x == "a" else "column"
    names = frozenset({f"scale_{x} of another {lines}", f"scale_{x} of another block", f"scale_{x} ignored"})

    def plant(scene: Scene) -> Plant | None:
        side = change(scene, A if x == "a" else B)
        return None if side is None else Plant(scene.kernel(**{f"scale_{x}": side}), names)

    return plant


def _two(scene: Scene) -> Plant | None:
    """A block index ignored, and c left out."""
    side = replace(A, block=lambda y, x: y * 0)
    names = frozenset({f"{LINES['a']} + accumulator ignored", f"accumulator ignored + {LINES['a']}"})
    return Plant(scene.kernel(a=side, start="zero"), names, frozenset({LINES["a"], "accumulator ignored"}))


def _two_k(scene: Scene) -> Plant | None:
    """Warps exchanged in A, and the last K tile left out."""
    side = replace(A, warp=lambda i, j: i ^ 1)
    names = frozenset({f"{LINES['a']} + K block missing", f"K block missing + {LINES['a']}"})
    if not scene.operands.c.any():
        names |= {f"{STORED} + K block missing", f"K block missing + {STORED}"}
    half = frozenset({LINES["a"], STORED}) | COUNTED
    return Plant(scene.kernel(a=side, tiles=lambda count: range(count - 1)), names, half)


def _tail_stale(scene: Scene) -> Plant | None:
    """K ends inside a tile, and what lies there is the tile's that was in the buffer before."""
    width, back = scene.operands.a.shape[1], scene.tile.bk * scene.pick(1, 2)
    if back > width:
        return None

    def where(row: Any, k: Any) -> tuple[Any, Any]:
        return row, np.where(k >= width, k - back, k)

    sides = {"a": replace(A, memory=where), "b": replace(B, memory=where)}
    return Plant(scene.kernel(**sides), frozenset({"K tail not cleared", "K block repeated"}))


def _tail_not_zero(scene: Scene) -> Plant | None:
    """K ends inside a tile, and what is read there is the next row."""
    own = scene.operands
    width = own.a.shape[1]

    def where(row: Any, k: Any) -> tuple[Any, Any]:
        place = row * width + k
        return place // width, place % width

    def b_where(row: Any, k: Any) -> tuple[Any, Any]:
        place = row * width + k
        return place // width, place % width

    sides = {"a": replace(A, memory=where), "b": replace(B, memory=b_where)}
    names = {"K tail not cleared", "a: K tail not cleared + b: K tail not cleared"}
    return Plant(scene.kernel(**sides), frozenset(names))


RESULTS = (
    Kind("last K tile missing", made_of("K block missing", tiles=lambda count: range(count - 1))),
    Kind("first K tile missing", made_of("K block missing", tiles=lambda count: range(1, count))),
    Kind("every second K tile", made_of("K block missing", tiles=lambda count: range(0, count, 2))),
    Kind("a K tile twice", made_of("K block repeated", tiles=lambda count: [*range(count), 1])),
    Kind(
        "the first K tile again and the last never", made_of("K blocks miscounted", tiles=lambda n: [0, *range(n - 1)])
    ),
    Kind(
        "a K tile missing in one block",
        made_of(
            "K block missing",
            tiles_of=Of(lambda scene: _one_place(scene, int(scene.random.integers(3)))),
        ),
    ),
    Kind("restarted in every K tile", made_of("accumulator restarted", "K block missing", restart=True)),
    Kind(
        "a split missing",
        made_of("K block missing", "K block missing + accumulator ignored", splits=3, kept=lambda n: [0, 2]),
    ),
    Kind("a split added twice", made_of("K block repeated", splits=2, kept=lambda n: [0, 1, 1])),
    Kind(
        "the last split overwrites",
        made_of(
            "K block missing",
            "K block missing + accumulator ignored",
            "accumulator restarted",  # "K 0-63 and c are lost: the sums begin anew at K 64"
            half=("accumulator ignored",),
            splits=2,
            kept=lambda n: [1],
        ),
    ),
    Kind("c ignored", _with_c(made_of("accumulator ignored", start="zero"))),
    Kind("c twice", _with_c(made_of("accumulator added twice", c_late=1.0))),
    Kind("accumulator not cleared", made_of("stale accumulator", "result scaled", start="run")),
    Kind(
        "warps stored at each other's place",
        _stored(STORED, lines=(LINES["a"],), store_warp=lambda i, j: (i ^ 1, j)),
    ),
    Kind(
        "warps exchanged along N at the store", _stored(STORED, lines=(LINES["b"],), store_warp=lambda i, j: (i, j ^ 1))
    ),
    Kind(
        "warp's M and N exchanged at the store",
        _stored(
            STORED, lines=(LINES["a"], LINES["b"], LINES["a"] + " + " + LINES["b"]), store_warp=lambda i, j: (j, i)
        ),
    ),
    Kind(
        "block indices exchanged at the store",
        _stored(
            STORED, UNWRITTEN, f"{STORED} + {UNWRITTEN}", f"{UNWRITTEN} + {STORED}", store_block=lambda y, x: (x, y)
        ),
    ),
    Kind(
        "every warp at the first one's place",
        _stored(STORED, f"{STORED} + {UNWRITTEN}", half=(UNWRITTEN,), store_warp=lambda i, j: (i * 0, j)),
    ),
    Kind("a warp stores nothing", made_of(UNWRITTEN, silent=lambda y, x, i, j: (i == 1) & (j == 0))),
    Kind("a block stores nothing", made_of(UNWRITTEN, silent=lambda y, x, i, j: (y == 1) & (x == 1))),
    Kind("last row of blocks not launched", made_of(UNWRITTEN, grid=lambda y, x: (y - 1, x))),
    Kind("last column of blocks not launched", made_of(UNWRITTEN, grid=lambda y, x: (y, x - 1))),
    Kind(
        "rows r and r + 8 exchanged at the store",
        _stored(STORED, lines=(LINES["a"],), store_lane=lambda r, c: (r ^ 8, c)),
    ),
    Kind(
        "columns c and c + 1 exchanged at the store",
        _stored(STORED, lines=(LINES["b"],), store_lane=lambda r, c: (r, c ^ 1)),
    ),
    Kind(
        "lane quarters of Tensor Memory exchanged",
        _stored(STORED, lines=(LINES["a"],), store_lane=lambda r, c: (r ^ 4, c)),
        ("tcgen05",),
    ),
    Kind(
        "columns of Tensor Memory shifted",
        _stored(STORED, lines=(LINES["b"],), store_lane=lambda r, c: (r, c ^ 8)),
        ("tcgen05",),
    ),
    Kind(
        "store 8 columns too far",
        _stored(
            STORED,
            "d: pointer off",
            f"{STORED} + {UNWRITTEN}",
            f"d: pointer off + {UNWRITTEN}",
            f"{LINES['b']} + {UNWRITTEN}",
            half=(UNWRITTEN, LINES["b"]),
            store=lambda r, c: (r, c + 8),
        ),
    ),
    Kind(
        "store's pitch",
        _stored(
            "d: pitch wrong",
            f"d: pitch wrong + {UNWRITTEN}",
            STORED,
            f"{STORED} + {UNWRITTEN}",
            half=(UNWRITTEN,),
            store=Of(
                lambda scene: (
                    lambda r, c: (
                        (r * (scene.shape[1] + 8) + c) // scene.shape[1],
                        (r * (scene.shape[1] + 8) + c) % scene.shape[1],
                    )
                )
            ),
        ),
    ),
    Kind(
        "stored transposed",
        _stored(
            "d transposed", store=Of(lambda scene: (lambda r, c: (c, r)) if scene.shape[0] == scene.shape[1] else None)
        ),
    ),
    Kind(
        "each warp's tile stored transposed",
        _stored("d transposed", STORED, store_lane=lambda r, c: (r // 8 * 8 + c % 8, c // 8 * 8 + r % 8)),
    ),
    Kind("alpha", _after(("result scaled",), lambda scene, d: 0.5 * d)),
    Kind("alpha of c alone", _with_c(made_of("c scaled", start="zero", c_late=0.5))),
    Kind("bias", _after(("bias added",), lambda scene, d: d + _vector(scene, 1))),
    Kind("bias along rows", _after(("bias added",), lambda scene, d: d + _vector(scene, 0))),
    Kind("rows scaled", _after(("rows scaled",), lambda scene, d: d * np.exp2(np.round(_vector(scene, 0))))),
    Kind("columns scaled", _after(("columns scaled",), lambda scene, d: d * np.exp2(np.round(_vector(scene, 1))))),
    Kind("ReLU", _after(("ReLU applied",), lambda scene, d: np.maximum(d, 0))),
    Kind(
        "ReLU and warps exchanged",
        _after(
            (f"ReLU applied + {LINES['a']}", f"{LINES['a']} + ReLU applied", f"{STORED} + ReLU applied"),
            lambda scene, d: np.maximum(d, 0),
            a=replace(A, warp=lambda i, j: i ^ 1),
        ),
    ),
    Kind(
        "half the result and a K tile missing",
        _after(
            (
                "result scaled + K block missing",
                "K block missing + result scaled",
                "K block missing + result scaled + accumulator ignored",
            ),
            lambda scene, d: 0.5 * d,
            tiles=lambda count: range(count - 1),
            start="zero",
        ),
    ),
    Kind("passed through bf16", _after((NARROW,), _narrow("bf16"))),
    Kind("passed through f16", _after((NARROW,), _narrow("f16"))),
    Kind("passed through e4m3", _after((NARROW,), _narrow("e4m3"))),
    Kind("truncated to bf16", _after(("result truncated to a narrower format",), _truncated)),
    Kind(
        "bf16 output, a block index ignored",
        _after(
            (f"{NARROW} + {LINES['a']}", f"{LINES['a']} + {NARROW}", f"{STORED} + {NARROW}"),
            _narrow("bf16"),
            a=replace(A, block=lambda y, x: y * 0),
        ),
    ),
    Kind("bf16 output, truncated", _cut_to_bf16),
    Kind("c ignored and a block index ignored", _with_c(_two)),
    Kind("warps exchanged and a K tile missing", _two_k),
    Kind(
        "bias and ReLU", _after(("bias added + ReLU applied",), lambda scene, d: np.maximum(d + _vector(scene, 1), 0))
    ),
    Kind(
        "bias, passed through bf16",
        _after((f"bias added + {NARROW}",), lambda scene, d: _narrow("bf16")(scene, d + _vector(scene, 1))),
    ),
    Kind(
        "alpha 0.7 and warps exchanged",
        _after(
            (f"result scaled + {LINES['a']}", f"result scaled + {STORED}"),
            lambda scene, d: 0.7 * d,
            a=replace(A, warp=lambda i, j: i ^ 1),
        ),
    ),
    Kind(
        "f16 output, a K tile missing",
        _after((f"{NARROW} + K block missing",), _narrow("f16"), tiles=lambda count: range(count - 1)),
    ),
    Kind("K tail of the tile before", _tail_stale, DENSE, ragged=True),
    Kind("K tail not cleared", _tail_not_zero, DENSE, ragged=True),
    Kind(
        "tail of K not computed", made_of("K block missing", tiles=lambda count: range(count - 1)), DENSE, ragged=True
    ),
    Kind(
        "warps exchanged, ragged",
        made_of(LINES["a"], STORED, a=replace(A, warp=lambda i, j: i ^ 1)),
        DENSE,
        ragged=True,
    ),
    Kind("metadata of the first K tile", _positions(lambda scene: replace(A, stage=lambda tile: 0)), ("sparse",)),
    Kind(
        "metadata one stage late",
        _positions(lambda scene: replace(A, stage=lambda tile: max(tile - 1, 0))),
        ("sparse",),
    ),
    Kind("metadata of the first block", _positions(lambda scene: replace(A, block=lambda y, x: y * 0)), ("sparse",)),
    Kind("metadata of the first warp", _positions(lambda scene: replace(A, warp=lambda i, j: i * 0)), ("sparse",)),
    Kind(
        "metadata of rows r and r + 8 exchanged",
        _positions(lambda scene: replace(A, fragment=lambda r: r ^ 8)),
        ("sparse",),
    ),
    *(
        kind
        for x in "ab"
        for kind in (
            Kind(
                f"scales of {x} of the first K tile",
                _scales(x, lambda scene, side: replace(side, stage=lambda tile: 0)),
                ("scaled",),
            ),
            Kind(
                f"scales of {x} one stage late",
                _scales(x, lambda scene, side: replace(side, stage=lambda tile: max(tile - 1, 0))),
                ("scaled",),
            ),
            Kind(
                f"scales of {x} of the first block",
                _scales(x, lambda scene, side: replace(side, block=lambda y, u: y * 0)),
                ("scaled",),
            ),
            Kind(
                f"scales of {x} of the first warp",
                _scales(x, lambda scene, side: replace(side, warp=lambda i, j: i * 0)),
                ("scaled",),
            ),
        )
    ),
)
