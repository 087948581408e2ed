"""The barriers of the tcgen05 kernels, played at random: nothing is used too early, nobody waits for ever, nothing is left over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcsim
from tests.unit.hwkernels.gemm.kernel_protocol import WARPS, Game, Protocol, ProtocolError

BASIC = Protocol(blocks=1, stages=4, tiles=1, steps=11)
PAIR = Protocol(blocks=2, stages=6, tiles=1, steps=13)
PERSISTENT = Protocol(blocks=2, stages=3, tiles=5, steps=4, buffers=2)
SHAPES = {
    "basic": BASIC,
    "basic, fewer steps than slots": replace(BASIC, steps=2),
    "basic, as many": replace(BASIC, steps=4),
    "pair": PAIR,
    "pair, one step": replace(PAIR, steps=1),
    "persistent": PERSISTENT,
    "persistent, tiles shorter than the ring": replace(PERSISTENT, steps=1, tiles=7),
    "persistent, one tile": replace(PERSISTENT, tiles=1),
    "persistent, a slot more than steps": replace(PERSISTENT, tiles=3, steps=2),
}
GAMES = 12


def play(rules: Protocol, seed: int) -> Game:
    """One game."""
    game = Game(rules, np.random.default_rng(seed))
    game.play()
    return game


def play_all(rules: Protocol, seeds: range) -> int:
    """Many games: how many tiles warps stored."""
    return sum(play(rules, seed).tiles_stored for seed in seeds)


@pytest.mark.parametrize("name", SHAPES)
def test_every_game_ends_well(name: str) -> None:
    """Whatever the order of moves."""
    rules = SHAPES[name]
    assert play_all(rules, range(GAMES)) == GAMES * rules.blocks * WARPS * rules.tiles


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (replace(BASIC, producer_parity=0), "deadlock"),
        (replace(BASIC, waits_for_empty=False), "reads|filled|all arrivals|arrivals are pending"),
        (replace(BASIC, skips_commits=5), "deadlock"),
        (replace(PAIR, announced=1), "reads|filled"),
        (replace(PAIR, commit_to=1), "deadlock"),
        (replace(PERSISTENT, freed_count=WARPS), "is \\[|deadlock"),
        (replace(PERSISTENT, waits_for_freed=False), "is \\["),
        (replace(PERSISTENT, arrives_before_reading=True), "is \\["),
        (replace(PERSISTENT, freed_count=9), "deadlock"),
    ],
)
def test_mistakes_are_seen(mistake: Protocol, text: str) -> None:
    """In one game at least of a few."""
    with pytest.raises((ProtocolError, tcsim.OperandError), match=text):
        play_all(mistake, range(40))
