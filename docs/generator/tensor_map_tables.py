"""Tables of tensor maps: the bits of a CUtensorMap, its data types."""

from __future__ import annotations

from generator.markdown import code, table
from tcsim.tma import bits
from tcsim.tma.reduce import REDUCTIONS
from tcsim.tma.types import DATA_TYPES


def tensor_map_bits() -> str:
    """The fields of a CUtensorMap."""
    fields = [("", item) for item in (*bits.COMMON, *bits.TILED)]
    fields += [(f"im2col, rank {rank}", item) for rank in (3, 4, 5) for item in bits.im2col_fields(rank)]
    fields += [("", item) for item in bits.DERIVED]
    rows = []
    for kind, item in fields:
        place = f"{item.low + item.bits - 1}:{item.low}"
        more = f" and {item.high + item.high_bits - 1}:{item.high}" if item.high is not None else ""
        stored = f"value - {item.less}" if item.less else f"value / {item.unit}" if item.unit > 1 else "value"
        rows.append((code(item.name), place + more, stored, item.meaning, kind, item.source))
    return table(("field", "bits", "stored", "unit or meaning", "of", "source"), rows)


def tensor_types() -> str:
    """The data types of tensor maps."""
    rows = []
    for row in DATA_TYPES.values():
        codes = bits.ELEMENT_CODES[row.name]
        reductions = [op for op, types in REDUCTIONS.items() if row.name in types]
        loads = "rounds" if row.rounds else "copies"
        rows.append((code(row.name), row.bits, row.driver, row.ptx, codes[0], codes[1], loads, ", ".join(reductions)))
    head = ("type", "bits", "driver", "PTX", "`element_type`", "`round_tf32`", "a load", "reductions")
    return table(head, rows, (1, 2, 3, 4, 5))
