from collections.abc import Sequence

from asyncrec.framing.crc import Buffer

def encode_frames(records: Sequence[bytes], handed_on: int, /) -> list[Buffer]: ...
