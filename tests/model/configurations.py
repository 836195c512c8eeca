"""All configurations, which can be selected by name."""

from __future__ import annotations

from .casts import cutting, following, larger, listing, logs, merging, replacing
from .states import Configuration


def configurations() -> tuple[Configuration, ...]:
    """Return all configurations. They are not cached, because initial stores depend on the rules in force."""
    groups = (
        logs.writers_and_enders,
        merging.checkpoints,
        replacing.turns,
        listing.torn_lists,
        listing.old_lists,
        following.followers_and_sources,
        cutting.folders,
        larger.larger_casts,
    )
    return tuple(each for group in groups for each in group())
