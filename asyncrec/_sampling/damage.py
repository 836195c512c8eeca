"""`DamageByShard` lists the damaged ranges that a stream skipped, each with the path of its shard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from asyncrec._framing.damage import Damage

# The maximum number of ranges listed. With more damage, a user needs intact copies of the shards, not a longer list.
_LISTED = 1000


class ShardDamage(NamedTuple):
    """A range of the shard at ``path`` that was lost or is in doubt."""

    path: str
    damage: Damage


class DamageByShard:
    """The damaged ranges of all shards. Each range is listed once, even if several passes find it."""

    def __init__(self) -> None:
        self._met: dict[tuple[str, int, int], Damage] = {}

    def add(self, path: str, found: Iterable[Damage]) -> None:
        for damage in found:
            member = -1 if damage.member_offset is None else damage.member_offset
            known = self._met.get((path, member, damage.offset))
            # The range may have grown since it was first found, because ranges that touch are merged.
            if (known is None and len(self._met) < _LISTED) or (known is not None and known.length < damage.length):
                self._met[path, member, damage.offset] = damage

    def listed(self) -> list[ShardDamage]:
        """Return the first 1,000 ranges, sorted by path. Ranges with the same path stay in the order of discovery."""
        return sorted((ShardDamage(key[0], damage) for key, damage in self._met.items()), key=lambda each: each.path)
