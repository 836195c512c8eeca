"""Which share of a data set is a worker's, with a PyTorch that only says where it is. The real one: tests/interop."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest


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

    info = None if worker is None else SimpleNamespace(id=worker, num_workers=workers)
    data.__dict__.update(Dataset=Base, IterableDataset=Base, get_worker_info=lambda: info)
    return {module.__name__: module for module in (torch, distributed, utils, data)}


@pytest.mark.parametrize(
    ("rank", "ranks", "worker", "workers", "share"),
    [
        (None, 1, None, 0, (0, 1)),
        (None, 1, 2, 3, (2, 3)),
        (1, 4, None, 0, (1, 4)),
        (0, 2, 1, 3, (1, 6)),
        (1, 2, 0, 3, (3, 6)),
        (1, 2, 2, 3, (5, 6)),
    ],
)
def test_a_share_is_counted_over_ranks_and_within_them_over_workers(
    monkeypatch: pytest.MonkeyPatch,
    rank: int | None,
    ranks: int,
    worker: int | None,
    workers: int,
    share: tuple[int, int],
) -> None:
    for name, module in fake_torch(rank, ranks, worker, workers).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "asyncrec.integrations.torch", raising=False)
    assert import_module("asyncrec.integrations.torch").worker_shard() == share


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_without_the_framework_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch, framework: str) -> None:
    monkeypatch.setitem(sys.modules, framework, None)
    monkeypatch.delitem(sys.modules, f"asyncrec.integrations.{framework}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install"):
        import_module(f"asyncrec.integrations.{framework}")
