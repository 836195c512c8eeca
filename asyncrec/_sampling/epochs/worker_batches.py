"""`WorkerBatches` computes the positions of a worker's next batch in an epoch. It does no I/O.

Batches are counted from the position that all workers share. Worker (i, n) gets the batches whose number is i modulo n.
After the same number of batches, all workers are at the same position again, and any number of workers can continue
from that position.

The processes that share a training step need the same number of batches; otherwise, one process would wait at the end
for another that has already finished. If these processes are the workers, all workers get the same number of batches.
If each process is a rank with its own loader processes (`WorkerOfRank`), giving all loader processes the same number
would omit up to n - 1 batches, and the size of an epoch would depend on n. Therefore, all ranks get the same number of
batches, but some workers of a rank get one batch more than the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from asyncrec._sampling.parameters import whole_number, worker_of
from asyncrec.errors import ArgumentValueError


class WorkerOfRank(tuple[int, int]):
    """Worker ``(i, n)``, whose rank is i modulo ``ranks``. All ranks get the same number of batches."""

    ranks: int

    def __new__(cls, number: int, workers: int, *, ranks: int) -> WorkerOfRank:
        made = super().__new__(cls, (number, workers))
        made.ranks = ranks
        return made


@dataclass(frozen=True, slots=True)
class PositionRange:
    """Positions ``[first, last)`` of an epoch, to be read by a worker.

    If ``counted_from`` is `None`, the worker reads all of them; otherwise, its share of the batches that are counted
    from that position.
    """

    epoch: int
    counted_from: int | None
    first: int
    last: int


class WorkerBatches:
    """The batches of one worker, as ranges of positions.

    Args:
        count: the number of records in an epoch.

    For the other arguments, see `asyncrec.Dataset.shuffled`.

    Attributes:
        first_epoch, num_repeat: the first epoch, and the number of epochs (-1 to repeat forever).
        batch_size: the number of records in a batch; 0 until `count_batches` is called, and after `give_back`.
        count: the number of records in an epoch.
        rounds: the number of batches that this worker gets in this epoch, from the position at which counting began.
        returned: the number of records that were returned, updated by the stream.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, count: int, *, epoch: int | None, num_repeat: int, worker: tuple[int, int], uneven: Literal["drop", "pad"]
    ) -> None:
        number, workers = worker_of(worker)
        if uneven not in ("drop", "pad"):
            raise ArgumentValueError(f'uneven={uneven!r}: must be "drop" or "pad"')
        self._epoch_given = epoch is not None
        epoch = 0 if epoch is None else whole_number(epoch, "epoch", least=0, other="None")
        if num_repeat != -1:
            num_repeat = whole_number(num_repeat, "num_repeat", least=0, other="-1 to repeat forever")
        self.count = count
        self._worker, self._workers = number, workers
        self._evenly = worker.ranks if isinstance(worker, WorkerOfRank) else workers
        self._uneven = uneven
        self.first_epoch = self._epoch = epoch
        self.num_repeat = num_repeat
        self._start = 0  # the position from which batches are counted
        self.rounds = 0
        self._done = 0  # the number of batches returned since counting began in this epoch
        self.batch_size = 0
        self.returned = 0

    @property
    def place(self) -> tuple[int, int]:
        """The epoch and the position of all workers once each has returned as many batches as this worker."""
        return self.place_before(0)

    def place_before(self, unused: int) -> tuple[int, int]:
        """Return the `place` before the last ``unused`` batches, which must all be of this epoch."""
        done = self._done - unused
        if self.batch_size and done and done == self.rounds:
            return self._epoch + 1, 0
        return self._epoch, min(self.count, self._start + done * self._workers * self.batch_size)

    def recount(self, count: int) -> None:
        """Set the number of records in an epoch, which must not increase. Call before `count_batches`.

        Raises:
            ValueError: the position that `go_on` set is beyond the last record.
        """
        self.count = count
        if self._start > count:
            raise self._damaged(self._epoch, self._start, (self.first_epoch, self.num_repeat))

    def go_on(self, epoch: int, position: int, run: tuple[int, int]) -> None:
        """Begin at a position of the ``run`` that a state belongs to. Call this before `count_batches`.

        ``run`` is a pair of a first epoch and a number of epochs. If ``epoch`` was not passed to the constructor, this
        object's first epoch becomes the first epoch of ``run``.

        Raises:
            ValueError: the run has no such position, or the epochs of this object neither continue nor follow the run.
        """
        here = self.first_epoch, self.num_repeat
        first, end = run[0], _end(run)
        if not (first <= epoch and position <= self.count) or (end is not None and (epoch, position) > (end, 0)):
            raise self._damaged(epoch, position, run)
        if not self._epoch_given:
            if run[1] != self.num_repeat:
                raise ArgumentValueError(
                    f"the state was taken with num_repeat={run[1]}, but this stream has {self.num_repeat}, so it "
                    "would end in a different place; pass the same num_repeat"
                )
            self.first_epoch = first
        elif (epoch, position) == (self.first_epoch, 0) and epoch == end:
            pass  # the run has ended, and this stream is the next run
        elif end != _end(here) or epoch < self.first_epoch:
            raise ArgumentValueError(
                f"the state is in epoch {epoch}, {_shown(run)}, but this stream has {_shown(here)}; pass the values "
                f"of the state (in PyTorch: set_epoch({first})), or omit epoch to use those of the state"
            )
        self._epoch, self._start = epoch, position

    def count_batches(self, size: int) -> None:
        """Start counting batches of this size at the current position.

        Raises:
            ValueError: an epoch has too few batches for all workers.
        """
        epoch, start = self.place
        self.rounds = self._rounds_from(epoch, start, size)
        self._epoch, self._start, self.batch_size, self._done = epoch, start, size, 0

    @property
    def left(self) -> int:
        """The number of batches of this epoch that this worker has not yet returned."""
        return self.rounds - self._done

    def batch(self) -> tuple[int, int] | None:
        """Return the positions ``[first, last)`` of this worker's next batch in its epoch, or `None` at the end."""
        while not self.left:
            if not self._has(self._epoch + 1):
                return None
            self._epoch, self._start, self._done = self._epoch + 1, 0, 0
            self.rounds = self._rounds_from(self._epoch, 0, self.batch_size)
        return self._batch(self._start, self._done)

    def took(self, batches: int = 1) -> None:
        """Count this many batches of this epoch as returned."""
        self._done += batches

    def give_back(self, unused: int, *, records: int) -> None:
        """Count the last ``unused`` batches, all of this epoch, as not yet returned. Call `count_batches` next.

        ``records`` is the number of records in these batches that were counted in `returned`.
        """
        self._epoch, self._start = self.place_before(unused)
        self.returned -= records
        self.batch_size = self.rounds = self._done = 0

    def ranges(self, window: int) -> Iterator[PositionRange]:
        """Yield the remaining ranges of positions in order: one for each window, and one for each padding batch."""
        epoch, start, batch_size = self._epoch, self._start, self.batch_size
        worker, workers = self._worker, self._workers
        while self._has(epoch):
            rounds = self._rounds_from(epoch, start, batch_size)
            end = min(self.count, start + rounds * workers * batch_size)
            for number in range(start // window, -(-end // window)):
                begin = number * window
                yield PositionRange(epoch, start, max(start, begin), min(end, begin + window))
            if rounds and start + ((rounds - 1) * workers + worker) * batch_size >= self.count:
                first, last = self._batch(start, rounds - 1)
                yield PositionRange(epoch, None, first, last)
            epoch, start = epoch + 1, 0

    def _damaged(self, epoch: int, position: int, run: tuple[int, int]) -> ArgumentValueError:
        return ArgumentValueError(
            f"the state is damaged: epoch {epoch}, position {position} does not exist in a stream of {self.count:,} "
            f"records with {_shown(run)}"
        )

    def _has(self, epoch: int) -> bool:
        end = _end((self.first_epoch, self.num_repeat))
        return self.count > 0 and (end is None or epoch < end)

    def _rounds_from(self, epoch: int, start: int, size: int) -> int:
        """Return the number of batches of ``size`` records that this worker gets from ``start`` to the epoch's end."""
        if not self._has(epoch):
            return 0
        batches = -(-(self.count - start) // size)
        dealt = (-(-batches // self._evenly) if self._uneven == "pad" else batches // self._evenly) * self._evenly
        if not dealt and not start:
            raise ArgumentValueError(
                f"{self.count:,} records make {batches:,} batches of {size}, fewer than the {self._evenly} "
                'workers; use smaller batches, or uneven="pad", which repeats some records'
            )
        return -((self._worker - dealt) // self._workers)  # the number of batches dealt to this worker

    def _batch(self, start: int, number: int) -> tuple[int, int]:
        """Return the positions of this worker's batch in round ``number``."""
        count = number * self._workers + self._worker
        first = start + count * self.batch_size
        if first >= self.count:  # pad with batches from the beginning of the epoch
            beyond = count - -(-(self.count - start) // self.batch_size)
            first = beyond % -(-self.count // self.batch_size) * self.batch_size
        return first, min(first + self.batch_size, self.count)


def _end(run: tuple[int, int]) -> int | None:
    """Return the first epoch after a run, or `None` if the run never ends."""
    return None if run[1] == -1 else sum(run)


def _shown(run: tuple[int, int]) -> str:
    return f"epoch={run[0]}, num_repeat={run[1]}"
