"""Two mistakes in one kernel. A right report has both."""

from __future__ import annotations

from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.kinds_epilogue import AlphaOnAll, CForgotten, PairsSwapped, ReluApplied
from tests.evaluation.second_wrong_kernels.kinds_formats import PairsOfAPackedBackwards
from tests.evaluation.second_wrong_kernels.kinds_loop import LastTileSkipped
from tests.evaluation.second_wrong_kernels.kinds_places import OrderOfB, PitchOfA
from tests.evaluation.second_wrong_kernels.kinds_warps import HalfOfBOfThePair
from tests.evaluation.second_wrong_kernels.problem import Wish


def both(one: type[Kernel], other: type[Kernel]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The patterns of both, and those of which one will do."""
    return one.needs + other.needs, ("|".join(one.half + other.half),)


class OrderOfBAndAlpha(OrderOfB, AlphaOnAll):
    """B is read in the other order in memory, and all is multiplied by {alpha}."""

    needs, half = both(OrderOfB, AlphaOnAll)


class LastTileAndC(LastTileSkipped, CForgotten):
    """The loop over K ends one tile early, and C is not added."""

    wish = Wish(tiles=3, c=True)
    needs, half = both(LastTileSkipped, CForgotten)


class PitchAndPairs(PitchOfA, PairsSwapped):
    """A's leading dimension is {by} too large, and pairs of columns of D are swapped."""

    needs, half = both(PitchOfA, PairsSwapped)


class PackedBackwardsAndRelu(PairsOfAPackedBackwards, ReluApplied):
    """The pairs of A are swapped along K, and a ReLU is applied."""

    needs, half = both(PairsOfAPackedBackwards, ReluApplied)


class HalfOfBAndAlpha(HalfOfBOfThePair, AlphaOnAll):
    """The right half of each tile is made of B's left half, and all is multiplied by {alpha}."""

    needs, half = both(HalfOfBOfThePair, AlphaOnAll)
