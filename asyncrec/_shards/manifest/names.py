"""The names of a data set's objects, and the rule for which names are data.

A data set is a folder and a name: ``s3://crawl/2026/pages`` is ``pages`` in ``s3://crawl/2026``. The folder contains

    pages-00000-of-00008.tfrecord             a fixed shard (TensorFlow's own pattern)
    pages-<maker>-00000-of-00008.tfrecord     a fixed shard whose plain name was taken, as in a replacement
    pages-<maker>-000000.tfrecord             a rolling shard, by its maker and number
    pages-<maker>-000000.<writer>.tfrecord    any of these, rewritten by the job <writer>
    _index/pages-<maker>-....tfrecord.index   the offset of each record of a shard
    _keys/pages-<maker>-....tfrecord.keys     the key of each record
    _progress/pages-<maker>-....progress      the source progress of a published shard that is not yet committed
    _manifest/pages/<maker>-000000.jsonl      the mark of a job that has not ended; the first object of its log
    _manifest/pages/<writer>-000001.jsonl     a segment of the manifest in its writer's log: a commit, or the log's end
    _manifest/pages/_removal-000001.jsonl     a place in the log of removals
    _manifest/pages/~checkpoint-000001.json   the pointer that names one of the candidates as the checkpoint
    _manifest/pages/~checkpoint-000001~<id>.jsonl.gz    a candidate; `~` sorts after all other characters
    _manifest/pages/~keys-000001~<id>.run     the sorted keys of many shards, made for that checkpoint (`key_run`)
    _manifest/pages/~latest.json              the pointer for readers that cannot list; written only on request
    _manifest/pages/_claim-000001.json        the claim of a job to make a fixed data set with this name
    _manifest/pages/_source-<hash>-000001.json    a writer's turn of a source, by a hash of the source's name
    _flush/pages/<writer>-000001.frames       a flush of a writer without a disk (`_shards.journal.flush_entry`)

A maker is the id of a writer, or ``<id>.<part>`` if several writers each make a part of one job. A shard's name
contains its maker, except for fixed shards with plain names, which belong to the job that has the claim. As in Hadoop,
Spark and Ray, names that begin with ``_`` or ``.`` are not data.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time

from asyncrec._records.dataset_names import MANIFESTS as MANIFESTS
from asyncrec._records.dataset_names import manifest_prefix as manifest_prefix
from asyncrec.errors import ArgumentValueError

_WRITER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,63}")
# The part of a shard's name after the name of the data set. The groups are the maker, the number of a rolling shard,
# and the job that rewrote the shard.
_SHARD = re.compile(
    r"-(?:([A-Za-z0-9][A-Za-z0-9_]{0,63}(?:\.[A-Za-z0-9_]{1,64})?)-)?(?:[0-9]{5,}-of-[0-9]{5,}|([0-9]{6,}))"
    r"(?:\.([A-Za-z0-9][A-Za-z0-9_]{0,63}))?\.tfrecord"
)
_REWRITTEN = re.compile(r"(.*-[0-9]{5,})\.([A-Za-z0-9][A-Za-z0-9_]{0,63})\.tfrecord")
_SEGMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9_]*)-([0-9]{6,18})\.jsonl")
_BEGIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.]{0,63})-000000\.jsonl")
_REMOVAL = re.compile(r"_removal-([0-9]{6,18})\.jsonl")
_CLAIM = re.compile(r"_claim-([0-9]{6,18})\.json")
_SOURCE_TURN = re.compile(r"_source-([0-9a-f]{16})-([0-9]{6,18})\.json")
_FLUSH = re.compile(r"([A-Za-z0-9][A-Za-z0-9_]*)-([0-9]{6,18})\.frames")
_CHECKPOINT = re.compile(r"~checkpoint-([0-9]{6,18})(?:\.json|~([A-Za-z0-9]{1,64})\.jsonl\.gz)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_NO_PARTS = frozenset(("", ".", ".."))


def fixed_shard_name(name: str, shard: int, num_shards: int, maker: str = "") -> str:
    """Return the name of a fixed shard: the plain name, or a name that contains ``maker``."""
    return f"{name}-{f'{maker}-' if maker else ''}{shard:05d}-of-{num_shards:05d}.tfrecord"


def rolling_shard_name(name: str, maker: str, sequence: int) -> str:
    """Return the name of a rolling shard."""
    return f"{name}-{maker}-{sequence:06d}.tfrecord"


def rewritten_name(shard: str, maker: str) -> str:
    """Return the name of a shard after ``maker`` has rewritten it. It sorts in the same place as the original name."""
    return f"{original_of(shard).removesuffix('.tfrecord')}.{maker}.tfrecord"


def rewriter_of(shard: str) -> str | None:
    """Return the job that rewrote a shard, according to the shard's name; `None` if it was never rewritten."""
    match = _REWRITTEN.fullmatch(shard)
    return None if match is None else match[2]


def original_of(shard: str) -> str:
    """Return the name that a shard had before it was rewritten."""
    match = _REWRITTEN.fullmatch(shard)
    return shard if match is None else f"{match[1]}.tfrecord"


def index_key(shard: str) -> str:
    """Return the key of a shard's index."""
    return f"_index/{shard}.index"


def keys_key(shard: str) -> str:
    """Return the key under which a shard's keys file is stored."""
    return f"_keys/{shard}.keys"


def progress_key(shard: str) -> str:
    """Return the key under which the source progress of an uncommitted shard is stored."""
    return f"_progress/{shard}.progress"


def with_maker(name: str, shard: str, maker: str) -> str:
    """Insert the maker into a shard's name if it is missing. The shard's sidecars are named after the result."""
    if shard.startswith(f"{name}-{maker}-") or rewriter_of(shard) == maker:
        return shard
    return f"{name}-{maker}{shard[len(name) :]}"


def segment_key(name: str, writer: str, number: int) -> str:
    """Return the key of segment ``number`` of a writer's log. Numbers start at 1."""
    return f"{manifest_prefix(name)}{writer}-{number:06d}.jsonl"


def segment_of(file: str) -> tuple[str, int] | None:
    """Return a segment's writer and number from its file name below `manifest_prefix`; `None` for other files."""
    match = _SEGMENT.fullmatch(file)
    if match is None or f"{int(match[2]):06d}" != match[2] or match[2] == "000000":
        return None
    return match[1], int(match[2])


def removal_key(name: str, place: int) -> str:
    """Return the key of the object that takes up a place in the log of removals."""
    return f"{manifest_prefix(name)}_removal-{place:06d}.jsonl"


def removal_of(file: str) -> int | None:
    """Return a place in the log of removals from its file name below `manifest_prefix`; `None` for other files."""
    match = _REMOVAL.fullmatch(file)
    return None if match is None else int(match[1])


def checkpoint_pointer_key(name: str, number: int) -> str:
    """Return the key of the pointer to a checkpoint."""
    return f"{manifest_prefix(name)}~checkpoint-{number:06d}.json"


def checkpoint_key(name: str, number: int, maker: str) -> str:
    """Return the key of a checkpoint, or of a candidate for one."""
    return f"{manifest_prefix(name)}~checkpoint-{number:06d}~{maker}.jsonl.gz"


def checkpoint_of(key: str) -> tuple[int, str | None] | None:
    """Return ``(number, maker)`` for the key of a checkpoint, ``(number, None)`` for a pointer, otherwise `None`."""
    match = _CHECKPOINT.fullmatch(key.rpartition("/")[2])
    return None if match is None else (int(match[1]), match[2])


def latest_key(name: str) -> str:
    """Return the key of the pointer for readers that cannot list objects."""
    return f"{manifest_prefix(name)}~latest.json"


def split_checkpoint_path(path: str) -> tuple[str, str] | None:
    """Split the path of a checkpoint, or of the pointer to the latest one, into the data set's path and the file name.

    Return `None` for any other path.
    """
    folder, _, file = path.rpartition("/")
    parent, _, name = folder.rpartition("/")
    before, slash, manifests = parent.rpartition("/")
    if (
        manifests + "/" != MANIFESTS
        or not name
        or not (file == "~latest.json" or ((found := checkpoint_of(file)) and found[1]))
    ):
        return None
    return before + slash + name, file


def begin_key(name: str, maker: str) -> str:
    """Return the key of the first object of a job's log, its mark."""
    return f"{manifest_prefix(name)}{maker}-000000.jsonl"


def begin_of(file: str) -> str | None:
    """Return the job whose mark has this file name below `manifest_prefix`; `None` for other files."""
    match = _BEGIN.fullmatch(file)
    return None if match is None else match[1]


def claim_key(name: str, number: int) -> str:
    """Return the key of a claim."""
    return f"{manifest_prefix(name)}_claim-{number:06d}.json"


def claim_of(file: str) -> int | None:
    """Return the number of a claim from its file name below `manifest_prefix`; `None` for other files."""
    match = _CLAIM.fullmatch(file)
    return None if match is None or match[1] != f"{int(match[1]):06d}" else int(match[1])


def source_turn_key(name: str, source: str, turn: int) -> str:
    """Return the key of a source's turn. Turns are numbered from 1."""
    return f"{manifest_prefix(name)}_source-{hash_of_source(source)}-{turn:06d}.json"


def source_turn_of(file: str) -> tuple[str, int] | None:
    """Return ``(hash of the source, turn)`` from a turn's file name below `manifest_prefix`; `None` for other files."""
    match = _SOURCE_TURN.fullmatch(file)
    if match is None or f"{int(match[2]):06d}" != match[2] or match[2] == "000000":
        return None
    return match[1], int(match[2])


def hash_of_source(source: str) -> str:
    """Return the hash that names a source's turns: the first 16 hexadecimal digits of the SHA-256 of its name."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def flush_prefix(name: str) -> str:
    """Return the prefix of the keys in a data set's flush logs."""
    return f"_flush/{name}/"


def flush_key(name: str, writer: str, number: int) -> str:
    """Return the key of entry ``number`` of a writer's flush log. Numbers start at 1."""
    return f"{flush_prefix(name)}{writer}-{number:06d}.frames"


def flush_of(file: str) -> tuple[str, int] | None:
    """Return a flush entry's writer and number from its file name below `flush_prefix`; `None` for other files."""
    match = _FLUSH.fullmatch(file)
    return None if match is None or f"{int(match[2]):06d}" != match[2] else (match[1], int(match[2]))


def is_data(key: str) -> bool:
    """Return whether a key may belong to a shard: no part of it begins with ``_`` or ``.``."""
    return not any(part.startswith(("_", ".")) for part in key.split("/"))


def may_be_shard(key: str) -> bool:
    """Return whether a key found in a folder may be a shard: it is data, and not an index made for other programs."""
    return is_data(key) and not key.endswith((".idx", ".tfindex"))


def maker_of(name: str, shard: str) -> tuple[str | None, bool] | None:
    """Return the maker of a shard of the data set ``name``, and whether it is a rolling shard.

    The maker is `None` if the shard is fixed and has a plain name. If the shard was rewritten, its maker is the job
    that rewrote it, and it does not count as rolling. Return `None` if ``shard`` does not name a shard of the data set.
    """
    match = _SHARD.fullmatch(shard[len(name) :])
    if not shard.startswith(name) or match is None or (match[2] and not match[1]):
        return None
    return (match[3], False) if match[3] else (match[1], match[2] is not None)


def stem_of(name: str, shard: str) -> str | None:
    """Return the owner of a shard of the data set ``name``: its maker, or ``of-00008`` for a plain fixed name."""
    found = maker_of(name, shard)
    if found is None:
        return None
    return found[0] if found[0] is not None else "of-" + shard.rpartition("-of-")[2].removesuffix(".tfrecord")


def sequence_of(shard: str) -> int:
    """Return the sequence number of a rolling shard."""
    return int(shard.rpartition("-")[2].removesuffix(".tfrecord"))


def new_writer_id() -> str:
    """Return a new id of 20 hexadecimal digits: the time in seconds, so that names sort by time, and 48 random bits.

    If two writers have the same id, the later one is rejected, because marks are created exclusively and an id in the
    manifest cannot be reused. Only the random bits distinguish writers that start in the same second. With 24 bits, the
    probability that two of 1,000 such writers share an id would be 3 %; with 48 bits, it is 0.002 % for 100,000.
    """
    return f"{int(time.time()):08x}{secrets.token_hex(6)}"


def validate_writer_id(writer: str) -> str:
    """Return the id, or raise ValueError if it is not 1 to 64 letters, digits or ``_``, or begins with ``_``."""
    if not isinstance(writer, str) or not _WRITER_ID.fullmatch(writer):
        raise ArgumentValueError(
            f"writer_id={writer!r}: must be 1 to 64 letters, digits or '_', beginning with a letter or digit, "
            "because it becomes part of file names"
        )
    return writer


def check_relative(path: str) -> None:
    """Check that a path in a manifest cannot lead out of the data set's folder.

    Raises:
        ValueError: the path is absolute, has a scheme or a drive, contains a NUL, has a part that is empty, ``.`` or
            ``..``, or is not valid UTF-8.
    """
    if (
        not path
        or path.startswith(("/", "\\"))
        or "\0" in path
        or _SCHEME.match(path)
        or not _NO_PARTS.isdisjoint(path.replace("\\", "/").split("/"))
        or path[1:2] == ":"
    ):
        raise ArgumentValueError(
            f"{path[:80]!r}; a path in a manifest must be relative and must not lead out of its folder"
        )
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ArgumentValueError(f"{path[:80]!r}; a path in a manifest must be valid UTF-8") from error
