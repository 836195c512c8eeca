"""`Mixing`: one pass over shards, interleaved and, if asked for, shuffled; its state as positions. Below streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from asyncrec._sampling.interleave.interleaver import Interleaving, Plan
from asyncrec._sampling.interleave.provenance import Origin, Taken, pack_origins, unpack_origins
from asyncrec._sampling.interleave.shard_inputs import Inputs
from asyncrec._sampling.interleave.shuffle_buffer import ShuffleBuffer
from asyncrec.tasks import TaskScope

__all__ = ["Mixing"]

# Records moved through the shuffle buffer without looking up: an await at most for so many.
_STEP = 256


class Mixing:
    """Records in order, by `take`. Used by one task; tasks that read for it run in ``scope``.

    Args:
        sequence: which inputs, in which order.
        seed: of the shuffle buffer.

    Attributes:
        records: given out.
    """

    def __init__(
        self, inputs: Inputs, sequence: Sequence[int], plan: Plan, *, scope: TaskScope | None, seed: int = 0
    ) -> None:
        self._inputs = inputs
        self._plan = plan
        self._interleaving = Interleaving(inputs, sequence, plan, scope=scope)
        self._buffer: ShuffleBuffer[tuple[bytes, Origin]] | None = None
        if plan.shuffle_buffer > 1:
            self._buffer = ShuffleBuffer(plan.shuffle_buffer, seed)
        self._gathering = Taken()  # what a cancelled take had; the next goes on with it
        self.records = 0

    @property
    def shards(self) -> int:
        """Read to their end."""
        return self._interleaving.shards

    @property
    def seconds_waited(self) -> float:
        """For reads."""
        return self._interleaving.seconds_waited

    async def take(self, count: int, *, held_only: bool = False) -> Taken:
        """The next ``count`` records; fewer only at the end, or, with ``held_only``, rather than wait for a read.

        An error comes after the records before it, and again at every later call. Cancelled, nothing is lost.
        """
        taken = self._gathering
        try:
            if self._buffer is None:
                await self._interleaving.gather(taken, count, held_only=held_only)
            else:
                await self._draw(self._buffer, taken, count, held_only)
        except Exception:
            if not taken.records:
                raise
        self._gathering = Taken()
        self.records += len(taken.records)
        return taken

    async def aclose(self) -> None:
        """Close what is open. Tasks end with their scope."""
        await self._interleaving.aclose()

    def state_dict(self) -> dict[str, Any]:
        """Where each open shard is, and where each record in the buffer stands."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """What gives the `state_dict` of now, later: see `Interleaving.snapshot`."""
        if not self._plan.deterministic:
            raise RuntimeError("with deterministic=False the order depends on timing: there is no state to go on from")
        interleaving, records = self._interleaving.snapshot(), self.records
        pending = pack_origins(self._gathering.origins())
        shuffle = None if self._buffer is None else (self._buffer.state_dict(), self._buffer.items)

        def state_dict() -> dict[str, Any]:
            state = {**interleaving(), "records": records, "pending": pending}
            if shuffle is not None:
                state["shuffle"] = shuffle[0]
                state["shuffled"] = pack_origins(origin for _, origin in shuffle[1])
            return state

        return state_dict

    async def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of the same inputs, sequence and plan; reads what the buffer held.

        Raises:
            ValueError: it is of others.
        """
        if self._interleaving.begun:
            raise RuntimeError("a state is loaded before the first record is read")
        self._interleaving.load_state_dict(state)
        self.records = int(state["records"])
        pending = unpack_origins(state["pending"], len(self._inputs))
        self._gathering = Taken(await self._inputs.read_again(pending), drawn=pending)
        if ("shuffle" in state) != (self._buffer is not None):
            raise ValueError("the state is of a stream with another shuffle_buffer")
        if self._buffer is not None:
            origins = unpack_origins(state["shuffled"], len(self._inputs))
            records = await self._inputs.read_again(origins)
            self._buffer.load_state_dict(state["shuffle"], zip(records, origins, strict=True))

    async def _draw(
        self, buffer: ShuffleBuffer[tuple[bytes, Origin]], taken: Taken, count: int, held_only: bool
    ) -> None:
        """Fill the buffer by no more than gives what is wanted, so that nothing is left over between calls."""
        while (missing := count - len(taken.records)) > 0:
            room = self._plan.shuffle_buffer - len(buffer)
            came = Taken()
            try:
                await self._interleaving.gather(
                    came, min(_STEP, room or missing), held_only=held_only, or_nothing=bool(taken.records)
                )
            finally:  # cancelled, what came is kept
                for pair in zip(came.records, came.origins(), strict=True):
                    out = buffer.push(pair)
                    if out is not None:
                        taken.add(*out)
            if came.records:
                continue
            if not self._interleaving.ended:
                return  # there is more, but not at hand
            for _ in range(min(missing, len(buffer))):
                taken.add(*buffer.pop())
            return
