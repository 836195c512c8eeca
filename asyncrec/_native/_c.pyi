from collections.abc import Callable, Sequence
from typing import Literal

from asyncrec._framing.crc import Buffer

def crc32c(data: Buffer, value: int = 0, /) -> int: ...
def crc32c_by_tables(data: Buffer, value: int = 0, /) -> int: ...
def crc32c_path() -> Literal["sse4.2", "armv8", "tables"]: ...
def cut_frames(data: bytes, position: int, max_record_bytes: int, verify: bool, records: list[bytes], /) -> int: ...
def encode_example(
    features: dict[str, object],
    narrow: bool,
    array_type: type,
    raw_of: Callable[[object, bool], tuple[int, bytes | list[bytes]]],
    /,
) -> bytes | None: ...
def encode_frames(records: Sequence[bytes], handed_on: int, /) -> list[Buffer]: ...
def example_columns(
    records: Sequence[Buffer],
    names: tuple[bytes, ...],
    kinds: bytes,
    ask: Callable[[int, bool], bytes | None],
    /,
) -> list[tuple[bytearray | list[bytes], bytearray]]: ...
