"""The SDK's models, read so that other threads run meanwhile.

Its own reader has C parse a whole file at a time, 1.2 MiB of endpoints and 1.4 of S3, and holds the interpreter's lock,
and so the event loop, for all of it: 10 to 30 ms each. A function of Python that is called for each object is where
others get their turn. And it makes plain dicts, in half the time and memory of the SDK's ordered ones.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from botocore.loaders import JSONFileLoader

__all__ = ["Models"]


class Models(JSONFileLoader):  # type: ignore[misc]  # without types
    """What the SDK's loader reads files with."""

    def load_file(self, file_path: str) -> Any:
        """Give what is in a file, named without its ending; `None` where there is none."""
        for ending, opened in ((".json", open), (".json.gz", gzip.open)):
            try:
                with opened(file_path + ending, "rb") as file:
                    text = file.read()
            except FileNotFoundError:
                continue
            return json.loads(text, object_pairs_hook=_object)
        return None


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(members)
