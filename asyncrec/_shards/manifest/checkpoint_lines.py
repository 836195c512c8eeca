"""The lines of a checkpoint, each of which is a JSON object in its own gzip member.

Therefore `zcat` prints all lines, gzip's CRC32 verifies each line before it is parsed, and a reader that stops early
has verified the lines that it read. A line's size is checked before it is parsed. A line may be at most 16 MiB long.
For each byte of its gzip member, it may have at most 16 bytes and one comma or opening bracket, because each comma or
bracket may cost a hundred bytes of memory. A line that would compress better than that is stored uncompressed. Lines
are checked as strictly as segments, because another user may have written the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from operator import lt
from typing import TYPE_CHECKING, Any

from asyncrec._framing.compression.engines import DEFLATE_ERRORS, compressobj, decompressobj
from asyncrec._framing.compression.options import CompressionOptions
from asyncrec._numpy import np
from asyncrec._shards.manifest.history import ABANDONED, CLOSED, History
from asyncrec._shards.manifest.progress import MOST_POSITION, NO_POSITION, is_source
from asyncrec._shards.manifest.segment import is_too_many
from asyncrec._shards.manifest.shard_columns import BY_WRITER, COMPRESSIONS, PLAIN_WRITER, micros_of
from asyncrec.errors import ManifestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The maximum number of rows in a line. Decoding them takes about three milliseconds, in steps of half a millisecond.
MOST_ROWS = 4096
MOST_BYTES = 16 << 20

_MOST_RATIO = 16
# The input is fed in small pieces, because at the end of each member, the decompressor copies the rest of the piece.
_STEP = 1 << 16
_JSON = json.JSONDecoder()


def encode_line(members: Mapping[str, Any]) -> bytes:
    """Encode one line.

    Raises:
        ManifestError: the line would be longer than readers accept.
    """
    texts = [f'"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in members.items()]
    line = b"{%b}\n" % ",".join(texts).encode()
    if len(line) > MOST_BYTES:
        raise ManifestError(f"a line of the checkpoint has {len(line):,} bytes, more than the limit of {MOST_BYTES:,}")
    deflated = _member(line, None)
    return deflated if _weighs_enough(line, len(deflated)) else _member(line, 0)


def _member(line: bytes, level: int | None) -> bytes:
    deflating = compressobj(CompressionOptions(type="GZIP", level=level))
    return bytes(deflating.compress(line) + deflating.flush())


def _weighs_enough(line: bytes, stored: int) -> bool:
    marks = line.count(b",") + line.count(b"[") + line.count(b"{")
    return marks <= stored and len(line) <= _MOST_RATIO * stored


class LineReader:
    """An incremental parser of the lines of a checkpoint. Blocks for a millisecond at a time."""

    def __init__(self, name: str) -> None:
        """``name`` is used in error messages."""
        self._name = name
        self._number = 0
        self._inflating: Any = None  # set only in the middle of a line
        self._line = bytearray()
        self._stored = 0

    @property
    def where(self) -> str:
        """The file and the line number, for error messages."""
        return f"{self._name}: line {self._number}"

    @property
    def is_between_lines(self) -> bool:
        """Whether the bytes that have been fed end with a complete line."""
        return self._inflating is None

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Decode the next bytes and yield the lines that they complete.

        Raises:
            ManifestError: the bytes are not gzip, or are not lines of a checkpoint.
        """
        for at in range(0, len(data), _STEP):
            some = data[at : at + _STEP]
            while some:
                some = self._inflate(some)
                if self._inflating.eof:
                    self._inflating = None
                    yield self._parsed()

    def _inflate(self, data: bytes) -> bytes:
        """Decompress the next bytes of the current line. Return any bytes that follow the end of the line."""
        if self._inflating is None:
            self._inflating, self._stored, self._number = decompressobj("GZIP"), 0, self._number + 1
            self._line.clear()
        try:
            self._line += self._inflating.decompress(data, MOST_BYTES + 1 - len(self._line))
        except DEFLATE_ERRORS as error:
            raise ManifestError(f"{self.where}: decompression failed; the checkpoint is damaged: {error}") from error
        if len(self._line) > MOST_BYTES:
            raise ManifestError(f"{self.where}: the line has more than {MOST_BYTES:,} bytes")
        rest: bytes = self._inflating.unused_data if self._inflating.eof else b""
        self._stored += len(data) - len(rest)
        return rest

    def _parsed(self) -> dict[str, Any]:
        line = bytes(self._line)
        if not line.endswith(b"\n") or line.count(b"\n") != 1:
            raise ManifestError(f"{self.where}: a GZIP member is not one line; the checkpoint is damaged")
        if not _weighs_enough(line, self._stored):
            raise ManifestError(
                f"{self.where}: {self._stored:,} bytes expand to more than is allowed; the checkpoint is damaged"
            )
        try:
            return _members(line.decode())
        except (ValueError, RecursionError) as error:
            raise ManifestError(f"{self.where}: the line is not valid JSON: {str(error)[:80]}") from error


def _members(text: str) -> dict[str, Any]:
    """Parse a JSON object member by member, so that other threads can run in between."""
    at, found = 0, dict[str, Any]()
    while text[at] == ("," if found else "{"):
        name, colon = _JSON.raw_decode(text, at + 1)
        if not isinstance(name, str) or text[colon] != ":" or name in found:
            raise ValueError(f"no member of an object at character {at}")
        found[name], at = _JSON.raw_decode(text, colon + 1)
    if text[at:] != "}\n":
        raise ValueError(f"no end of an object at character {at}")
    return found


_TIME = micros_of("0001-01-01T00:00:00.000000Z"), micros_of("9999-12-31T23:59:59.999999Z")
_MOST = (1 << 63) - 2
_SLASH, _BACKSLASH, _DOT, _COLON = b"/\\.:"


def limits(kind: str, rows: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the valid range of each column that allows fewer values than its type. ``rows`` has row counts by kind."""
    counts = dict.fromkeys(("first", "last", "records", "bytes", "index_bytes", "keys_bytes"), (0, _MOST))
    values, commits = (-1, rows.get("values", 0) - 1), (0, rows.get("commits", 0) - 1)
    match kind:
        case "commits":
            return {
                "writer": (0, rows.get("writers", 0) - 1),
                "time": _TIME,
                **dict.fromkeys(("schema", "metadata", "extra"), values),
                "removal": (-1, _MOST),
                "flags": (0, CLOSED | ABANDONED),
            }
        case "shards":
            names = (BY_WRITER, rows.get("names", 0) - 1)
            times = dict.fromkeys(("first", "last", "committed"), _TIME)
            return {**counts, **times, "index": names, "keys": names, "extra": values, "commit": commits}
        case "progress":
            turns = (0, MOST_POSITION)
            return {"turn": turns, "position": (NO_POSITION, MOST_POSITION), "released": turns}
    return {**counts, "commit": commits}


def check_paths(content: bytes, rows: int, where: str) -> None:
    """Check many paths at once, in the same way as `names.check_relative`. Each path is followed by a NUL.

    Raises:
        ManifestError: a path contains a NUL, or could lead out of the folder.
    """
    letters = np.frombuffer(content, np.uint8)
    ends = letters == 0
    if int(ends.sum()) != rows:
        raise ManifestError(f"{where}: a path contains a NUL; the checkpoint is damaged")
    # Where a part of a path begins or ends, shifted by one to include the beginning of the first path.
    bounds = np.concatenate([[True], ends | (letters == _SLASH) | (letters == _BACKSLASH)])
    dots = np.concatenate([[False], letters == _DOT])
    after_end = np.concatenate([[True], ends])  # the positions at which a path begins
    if (
        (bounds[:-1] & bounds[1:]).any()
        or (bounds[:-2] & dots[1:-1] & bounds[2:]).any()
        or (bounds[:-3] & dots[1:-2] & dots[2:-1] & bounds[3:]).any()
        or (after_end[:-2] & (letters[1:] == _COLON)).any()
    ):
        raise ManifestError(f"{where}: a path is not relative, or leads out of its folder")


def check_shards(numbers: Mapping[str, NDArray[Any]], where: str) -> None:
    """Check that the numbers of shards are plausible.

    Raises:
        ManifestError: a number is not plausible.
    """
    compressed = numbers["flags"] & 3 != 0
    for rows, kind in ((compressed, True), (~compressed, False)):
        if is_too_many(numbers["records"][rows], numbers["bytes"][rows], compressed=kind).any():
            raise ManifestError(f"{where}: the records do not fit in the bytes; the checkpoint is damaged")
    if (numbers["flags"] & 3 >= len(COMPRESSIONS)).any():
        raise ManifestError(f"{where}: a number is out of range; the checkpoint is damaged")


def check_sources(sources: Sequence[str], where: str) -> None:
    """Check that the names of sources are valid, unique and in ascending order.

    Raises:
        ManifestError: a name is invalid, repeated or out of order.
    """
    if not all(map(is_source, sources)) or not all(map(lt, sources, sources[1:])):
        raise ManifestError(f"{where}: a source name is invalid or out of order; the checkpoint is damaged")


def check_names_by_writer(history: History, name: str) -> None:
    """Check that every writer id in the name of an index or keys file is valid as part of a name.

    Raises:
        ManifestError: a writer id is not valid as part of a name.
    """
    numbers = history.shards.numbers
    named_by = np.unique(numbers["commit"][(numbers["index"] == BY_WRITER) | (numbers["keys"] == BY_WRITER)])
    for writer in np.unique(history.commits["writer"][named_by]).tolist():
        if not PLAIN_WRITER.fullmatch(history.writers[writer]):
            raise ManifestError(f"{name}: an index is named by a writer whose id is invalid in names")
