"""`DamageByShard` lists what a stream over many shards skipped: each range with the path of its shard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from asyncrec._framing.damage import Damage

# As for one file: with more damage than this, intact copies of the shards help, and a longer list does not.
_LISTED = 1000


class ShardDamage(NamedTuple):
    """A range of the shard at ``path`` that was lost, or is in doubt."""

    path: str
    damage: Damage


class DamageByShard:
    """The damaged ranges of all shards. Each is listed once, however often it is met, as in every pass."""

    def __init__(self) -> None:
        self._met: dict[tuple[str, int, int], Damage] = {}

    def add(self, path: str, found: Iterable[Damage]) -> None:
        for damage in found:
            member = -1 if damage.member_offset is None else damage.member_offset
            known = self._met.get((path, member, damage.offset))
            # It may have grown since: ranges that touch are one.
            if (known is None and len(self._met) < _LISTED) or (known is not None and known.length < damage.length):
                self._met[path, member, damage.offset] = damage

    def listed(self) -> list[ShardDamage]:
        """Return the first 1,000 ranges, by path and then in the order in which they were met."""
        return sorted((ShardDamage(key[0], damage) for key, damage in self._met.items()), key=lambda each: each.path)
