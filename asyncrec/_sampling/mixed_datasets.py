"""Train and test in one folder are read as one where a pattern, or nothing, says which shards: seldom what is meant."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from asyncrec._shards.manifest.names import maker_of

_log = logging.getLogger("asyncrec.sampling")

# In a warning, of the data sets of a folder.
_NAMED = 10


def warn_of_several(
    path: str, datasets: Iterable[str], shards: Collection[str], *, one_alone: Callable[[str], str]
) -> None:
    """Warn where the shards that were found, by their names, are of several data sets.

    Args:
        path: what was asked for, for the message.
        datasets: the names of those in the folder that have a manifest.
        one_alone: what reads only the data set of a name.
    """
    mixed = [name for name in sorted(set(datasets)) if any(maker_of(name, shard) for shard in shards)]
    if len(mixed) > 1:
        _log.warning(
            "%s: the shards of %d data sets are read together: %s; of one alone by %s",
            path,
            len(mixed),
            ", ".join(mixed[:_NAMED]) + (", ..." if len(mixed) > _NAMED else ""),
            one_alone(mixed[0]),
            extra={"path": path, "datasets": len(mixed)},
        )
