"""Each worker reads its share of a data set. A fake PyTorch only says which worker it is.

tests/interop has the tests with the real PyTorch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st


def fake_torch(rank: int | None, ranks: int, worker: int | None, workers: int) -> dict[str, ModuleType]:
    torch, distributed, utils, data = (
        ModuleType(name) for name in ("torch", "torch.distributed", "torch.utils", "torch.utils.data")
    )
    torch.distributed, torch.utils, utils.data = distributed, utils, data  # type: ignore[attr-defined]  # a fake
    distributed.__dict__.update(
        is_available=lambda: True,
        is_initialized=lambda: rank is not None,
        get_rank=lambda: rank,
        get_world_size=lambda: ranks,
    )

    class Base:
        def __class_getitem__(cls, item: object) -> type[Base]:
            return cls

    info = None if worker is None else SimpleNamespace(id=worker, num_workers=workers, dataset=None)
    data.__dict__.update(Dataset=Base, IterableDataset=Base, get_worker_info=lambda: info)
    return {module.__name__: module for module in (torch, distributed, utils, data)}


@pytest.mark.parametrize(
    ("rank", "ranks", "worker", "workers", "share"),
    [
        (None, 1, None, 0, (0, 1)), (None, 1, 2, 3, (2, 3)), (1, 4, None, 0, (1, 4)), (0, 2, 1, 3, (2, 6)),
        (1, 2, 0, 3, (1, 6)), (1, 2, 2, 3, (5, 6)), (1, 2, 0, 1, (1, 2)),
    ],
)  # fmt: skip
def test_shares_are_assigned_by_rank_then_worker(
    monkeypatch: pytest.MonkeyPatch,
    rank: int | None,
    ranks: int,
    worker: int | None,
    workers: int,
    share: tuple[int, int],
) -> None:
    assert with_torch(monkeypatch, "fork", rank, ranks, worker, workers).worker_shard() == share


def with_torch(monkeypatch: pytest.MonkeyPatch, method: str, *place: Any) -> Any:
    for name, module in fake_torch(*place).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "asyncrec.integrations.torch", raising=False)
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none=False: method)
    return import_module("asyncrec.integrations.torch")


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_workers_never_share_batch_across_uneven_ranks(workers: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shares = [
            with_torch(patch, "fork", rank, len(workers), worker, count).worker_shard()
            for rank, count in enumerate(workers)
            for worker in range(count)
        ]
    for number in range(300):
        assert sum(number % among == share for share, among in shares) == 1


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_worker_without_rank_fails(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """``torch.distributed`` is not initialized in the worker, so each rank would read everything."""
    torch = with_torch(monkeypatch, method, None, 1, 0, 2)
    with pytest.raises(
        RuntimeError, match="a spawned worker does not know its rank; read through a StreamDataset, which passes"
    ):
        torch.worker_shard()


def test_dataset_carries_rank_to_spawned_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_stream(worker: tuple[int, int]) -> Any:
        raise AssertionError(worker)

    sent = with_torch(monkeypatch, "spawn", 1, 2, None, 0).StreamDataset(no_stream).__getstate__()
    torch = with_torch(monkeypatch, "spawn", None, 1, 1, 3)
    received = torch.StreamDataset(no_stream)
    received.__dict__.update(sent)
    assert received.state_dict()["shard"] == [3, 6]


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_missing_framework_error_names_package_to_install(monkeypatch: pytest.MonkeyPatch, framework: str) -> None:
    monkeypatch.setitem(sys.modules, framework, None)
    monkeypatch.delitem(sys.modules, f"asyncrec.integrations.{framework}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install"):
        import_module(f"asyncrec.integrations.{framework}")
