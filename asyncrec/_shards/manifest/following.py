"""`ManifestFollower`: the manifest of a data set that grows is loaded again and again, and only what is new is read."""

from __future__ import annotations

from asyncrec._shards.manifest.loading import LoadedManifest, load_listed
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.snapshot import snapshot_of
from asyncrec.storage._base import Storage


class ManifestFollower:
    """The manifest of a data set that grows, loaded again and again: what was read is not read again."""

    def __init__(self, folder: Storage, name: str, *, path: str) -> None:
        self._folder = folder
        self._name = name
        self._path = path
        self._known: LoadedManifest | None = None
        self._manifest: Manifest | None = None

    async def load(self) -> Manifest | None:
        """Load the snapshot as it is now, the same object while nothing has changed; `None` where there is none."""
        found = await load_listed(self._folder, self._name, self._known)
        if found is None:
            self._manifest = None
        elif self._known is None or found.history is not self._known.history:
            self._manifest = await snapshot_of(self._path, found.history)
        self._known = found
        return self._manifest
