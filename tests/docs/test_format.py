"""The format documentation contains every name and every field of the stored data."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

from asyncrec._shards.manifest import names

ROOT = Path(__file__).parents[2]
PAGES = "".join(page.read_text("utf-8") for page in (ROOT / "docs").glob("format*.md"))


def test_format_pages_list_each_name_pattern() -> None:
    patterns = re.findall(r"^    (\S+)  ", names.__doc__ or "", re.MULTILINE)
    assert len(patterns) > 10
    assert [pattern for pattern in patterns if f"`{pattern}`" not in PAGES] == []


def test_format_pages_list_each_stored_member() -> None:
    folder = ROOT / "tests" / "vectors" / "datasets" / "1"
    stored = [path.read_bytes() for path in folder.glob("_manifest/*/*.json*")]
    unzipped = [gzip.decompress(each) if each.startswith(b"\x1f\x8b") else each for each in stored]
    lines = [line for each in unzipped for line in each.splitlines()]
    lines.append((folder / ".dead.w5.partial").read_bytes().splitlines()[1])
    found: set[str] = set()
    for line in map(json.loads, lines):
        for each in (line, *(line.get(name) for name in ("index", "compression", "rows"))):
            found.update(each if isinstance(each, dict) else ())
    assert {"end_crc32c", "removal", "stems", "member_bytes", "identity", "last"} < found
    assert [member for member in sorted(found) if f"`{member}`" not in PAGES] == []
