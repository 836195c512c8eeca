"""Configurations of a local folder, and its possible states after a power cut."""

from __future__ import annotations

from collections.abc import Iterator

from .. import folder
from ..judge import exclude
from ..states import Actor, Configuration
from ..store import after_a_power_cut
from .words import (
    committed,
    follows,
    lock,
    told,
)


def folders() -> Iterator[Configuration]:
    """Every state is also judged after a power cut; in one configuration, the power cut is a step."""
    yield Configuration(
        "folder",
        "a folder: a writer that commits and closes",
        (Actor("W", folder.writer, ("W", "a", "b")),),
        after=after_a_power_cut,
    )
    yield Configuration(
        "folder-ender",
        "a folder: a writer that was killed, and one that takes its shards as they are",
        (Actor("W", folder.writer, ("W", "a", "b")), Actor("A", folder.ender, ("A", "W"))),
        allowed=lock,
        after=after_a_power_cut,
    )
    yield Configuration(
        "folder-checkpoints",
        "a folder: two that make checkpoints beside a writer",
        (Actor("W", folder.writer, ("W", "a", "b")), Actor("M", folder.maker), Actor("N", folder.maker)),
        after=after_a_power_cut,
    )
    yield Configuration(
        "folder-remover",
        "a folder: one that replaces, beside a checkpoint",
        (Actor("R", folder.remover, ("R",)), Actor("M", folder.maker)),
        store=committed("O", "o", closed=True),
        told=told("o"),
        also=exclude(("o", "r")),
        after=after_a_power_cut,
    )
    yield Configuration(
        "folder-follower",
        "a folder: a follower, a power cut, and one that ends what was written before",
        (
            Actor("W", folder.writer, ("W", "a", "b")),
            Actor("power", folder.power),
            Actor("A", folder.ender, ("A", "W")),
            follows("f", 2, in_folder=True),
        ),
        allowed=lock,
    )
