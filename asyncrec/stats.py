"""The types of the ``stats`` of writers, readers, streams and samplers, and `writer_totals`, which sums the statistics
of all sharded writers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec._records.reading.reader import ReaderStats as ReaderStats
    from asyncrec._records.writing.writer import WriterStats as WriterStats
    from asyncrec._sampling.epochs.shuffled_stream import StreamStats as StreamStats
    from asyncrec._sampling.interleave.stream import InterleaveStats as InterleaveStats
    from asyncrec._sampling.interleave_sampler.sampler import SamplerStats as SamplerStats
    from asyncrec._shards.writing.totals import ShardedWriterStats as ShardedWriterStats
    from asyncrec._shards.writing.totals import WriterTotals as WriterTotals
    from asyncrec._shards.writing.totals import writer_totals as writer_totals

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec._records.reading.reader": "ReaderStats",
        "asyncrec._records.writing.writer": "WriterStats",
        "asyncrec._sampling.epochs.shuffled_stream": "StreamStats",
        "asyncrec._sampling.interleave.stream": "InterleaveStats",
        "asyncrec._sampling.interleave_sampler.sampler": "SamplerStats",
        "asyncrec._shards.writing.totals": "ShardedWriterStats WriterTotals writer_totals",
    },
)
