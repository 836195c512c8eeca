"""`HashShuffler` sorts records by the hashes of their keys in bounded memory, whatever the order of its input."""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncrec._datasets.shuffling.shuffler as module
from asyncrec._datasets.shuffling.shuffler import HashShuffler, OnDuplicate
from asyncrec.errors import CorruptRecordError, DuplicateKeyError, StorageError


def order_of(keys: list[str], salt: str) -> list[str]:
    """Return the keys in datum's and TFDS's order: sorted by their hashes as 128-bit numbers."""
    return sorted(keys, key=lambda key: int(hashlib.md5(salt.encode() + key.encode()).hexdigest(), 16))


def drained(shuffler: HashShuffler) -> list[bytes]:
    shuffler.settle()
    records = [record for batch in shuffler.batches() for record in batch]
    assert len(records) == shuffler.records
    assert sum(map(len, records)) == shuffler.size
    return records


@pytest.mark.parametrize("memory_limit", [1 << 30, 200_000, 20_000])
def test_shuffler_orders_by_salted_md5_with_or_without_spilling(tmp_path: Path, memory_limit: int) -> None:
    keys = [f"key {i}" for i in range(2000)]
    shuffler = HashShuffler("train", memory_limit=memory_limit, temporary_folder=tmp_path)
    for key in keys:
        shuffler.add(key, key.encode())
    assert (shuffler.spilled_bytes > 0) == (memory_limit < 1 << 30)
    assert drained(shuffler) == [key.encode() for key in order_of(keys, "train")]
    shuffler.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("on_duplicate", ["raise", "first", "last"])
def test_repeated_settle_changes_no_records_or_bytes(tmp_path: Path, on_duplicate: OnDuplicate) -> None:
    shuffler = HashShuffler("train", memory_limit=20_000, temporary_folder=tmp_path, on_duplicate=on_duplicate)
    for i in range(200):
        shuffler.add(f"key {i}", b"%d" % i)
    spilled = shuffler.spilled_bytes
    shuffler.settle()
    assert (shuffler.spilled_bytes == spilled) == (on_duplicate == "raise")
    settled = shuffler.spilled_bytes
    shuffler.settle()
    assert (shuffler.records, shuffler.spilled_bytes) == (200, settled)
    assert len(drained(shuffler)) == 200
    shuffler.close()


def test_record_order_differs_between_splits() -> None:
    assert order_of(list("abcdefgh"), "train") != order_of(list("abcdefgh"), "test")
    orders = []
    for split in ("train", "test"):
        shuffler = HashShuffler(split)
        for key in "abcdefgh":
            shuffler.add(key, key.encode())
        orders.append([record.decode() for record in drained(shuffler)])
    assert orders == [order_of(list("abcdefgh"), "train"), order_of(list("abcdefgh"), "test")]


@given(
    st.dictionaries(st.text(max_size=8), st.binary(max_size=300), max_size=80),
    st.randoms(use_true_random=False),
    st.integers(1, 30_000),
)
def test_output_order_is_independent_of_insertion_order(
    tmp_path_factory: pytest.TempPathFactory, records: dict[str, bytes], rng: random.Random, memory_limit: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "spilled"
    expected = [records[key] for key in sorted(records, key=lambda key: HashShuffler("s").digest(key))]
    keys = list(records)
    rng.shuffle(keys)
    shuffler = HashShuffler("s", memory_limit=memory_limit, temporary_folder=folder)
    for key in keys:
        shuffler.add(key, records[key])
    assert drained(shuffler) == expected
    shuffler.close()


def test_digest_equates_number_with_text_and_uses_bytes_unchanged() -> None:
    shuffler = HashShuffler("s")
    assert shuffler.digest(1) == shuffler.digest("1") == shuffler.digest(b"1") == shuffler.digest(bytearray(b"1"))
    assert shuffler.digest("é") == hashlib.md5("sé".encode()).digest()
    assert shuffler.digest(("a", 1)) == hashlib.md5(b"s('a', 1)").digest()
    with pytest.raises(
        TypeError, match=r"a key must be a str, bytes or a number, not object, whose str\(\) differs between runs"
    ):
        shuffler.digest(object())


class TestMemory:
    @pytest.mark.slow
    def test_shuffler_bounds_memory_and_open_files(self, tmp_path: Path) -> None:
        """40 MB pass through 1 MiB of memory: the first-level buckets exceed the limit, too, and are split again."""
        limit = 1 << 20
        before = len(os.listdir("/proc/self/fd"))
        most_files = most_held = 0
        shuffler = HashShuffler("s", memory_limit=limit, temporary_folder=tmp_path)
        # There are 256 buckets of 150 KB on average; a long record exceeds the limit together with the rest of its
        # bucket.
        for i in range(40_000):
            shuffler.add(i, i.to_bytes(4) + bytes(900_000 if i % 4000 == 0 else 996))
            if i % 1000 == 0:
                most_files = max(most_files, len(os.listdir("/proc/self/fd")))
            most_held = max(most_held, shuffler.held_bytes)
        count = 0
        last = b""
        for batch in shuffler.batches():
            most_files = max(most_files, len(os.listdir("/proc/self/fd")))
            for record in batch:
                digest = shuffler.digest(int.from_bytes(record[:4]))
                assert digest > last
                last = digest
            count += len(batch)
        assert count == 40_000
        assert most_held <= limit
        assert most_files - before <= 4
        assert shuffler.most_held_bytes <= limit + 1_000_000, "one record may come on top, before all are spilled"

    def test_oversized_bucket_is_split_by_next_byte(self, tmp_path: Path) -> None:
        shuffler = HashShuffler("s", memory_limit=3000, temporary_folder=tmp_path)
        keys = [str(i) for i in range(3000)]
        for key in keys:
            shuffler.add(key, key.encode())
        first_level = shuffler.spilled_bytes
        assert drained(shuffler) == [key.encode() for key in order_of(keys, "s")]
        assert shuffler.spilled_bytes > first_level * 1.5, "some twelve records a bucket, and room for seven"

    def test_shuffler_accepts_records_larger_than_memory_limit(self, tmp_path: Path) -> None:
        shuffler = HashShuffler("s", memory_limit=10, temporary_folder=tmp_path)
        for i in range(5):
            shuffler.add(i, bytes([i]) * 1000)
        assert sorted(drained(shuffler)) == [bytes([i]) * 1000 for i in range(5)]

    def test_bucket_files_are_deleted_with_shuffler(self, tmp_path: Path) -> None:
        shuffler = HashShuffler("s", memory_limit=10, temporary_folder=tmp_path)
        for i in range(5):
            shuffler.add(i, b"record")
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o77 == 0, "for this user alone"
        del shuffler
        gc.collect()
        assert list(tmp_path.iterdir()) == []

    def test_shuffler_creates_no_files_without_need(self, tmp_path: Path) -> None:
        shuffler = HashShuffler("s", temporary_folder=tmp_path)
        shuffler.add("a", b"record")
        assert drained(shuffler) == [b"record"]
        assert list(tmp_path.iterdir()) == []


class TestDuplicates:
    def test_duplicate_in_memory_raises_at_once_with_keys(self) -> None:
        shuffler = HashShuffler("s")
        shuffler.add("x", b"")
        shuffler.add("1", b"")
        with pytest.raises(DuplicateKeyError, match=r"number 1 has '1', number 2 has 1 \("):
            shuffler.add(1, b"")

    def test_duplicate_of_spilled_key_raises_at_once(self, tmp_path: Path) -> None:
        shuffler = HashShuffler("s", memory_limit=5000, temporary_folder=tmp_path)
        for i in range(1000):
            shuffler.add(f"k{i}", bytes(10))
        with pytest.raises(DuplicateKeyError, match=r"number 3 has 'k3', number 1000 has 'k3'"):
            shuffler.add("k3", bytes(10))

    def test_duplicate_of_forgotten_key_raises_while_sorting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_KNOWN_KEYS", 0)
        shuffler = HashShuffler("s", memory_limit=5000, temporary_folder=tmp_path)
        for i in range(1000):
            shuffler.add(f"k{i}", bytes(10))
        shuffler.add("k3", bytes(10))
        with pytest.raises(DuplicateKeyError, match=r"number 3 has 'k3', number 1000 has 'k3'"):
            drained(shuffler)

    @pytest.mark.parametrize("memory_limit", [1 << 20, 5000])
    @pytest.mark.parametrize("on_duplicate", ["first", "last"])
    def test_first_or_last_duplicate_is_kept(
        self, tmp_path: Path, memory_limit: int, on_duplicate: OnDuplicate
    ) -> None:
        rng = random.Random(memory_limit)
        shuffler = HashShuffler("s", memory_limit=memory_limit, temporary_folder=tmp_path, on_duplicate=on_duplicate)
        expected: dict[str, bytes] = {}
        for i in range(2000):
            key, record = f"k{rng.randrange(300)}", i.to_bytes(2)
            shuffler.add(key, record)
            if on_duplicate == "last" or key not in expected:
                expected[key] = record
        assert (shuffler.spilled_bytes > 0) == (memory_limit == 5000)
        assert drained(shuffler) == [expected[key] for key in order_of(list(expected), "s")]
        assert shuffler.added == 2000
        shuffler.close()
        assert list(tmp_path.iterdir()) == []

    def test_repeated_key_occupies_memory_of_one_record(self, tmp_path: Path) -> None:
        shuffler = HashShuffler("s", memory_limit=2000, temporary_folder=tmp_path, on_duplicate="last")
        for i in range(10_000):
            shuffler.add("same", i.to_bytes(2))
        assert shuffler.spilled_bytes == 0
        assert drained(shuffler) == [(9999).to_bytes(2)]


class TestDisk:
    def test_corrupted_bucket_is_detected(self, tmp_path: Path) -> None:
        shuffler = HashShuffler("s", memory_limit=5000, temporary_folder=tmp_path)
        for i in range(1000):
            shuffler.add(i, bytes(100))
        (folder,) = tmp_path.iterdir()
        bucket = max(folder.iterdir())
        content = bytearray(bucket.read_bytes())
        content[60] ^= 1
        bucket.write_bytes(content)
        with pytest.raises(CorruptRecordError, match=bucket.name) as caught:
            drained(shuffler)
        assert "the disk is probably faulty" in caught.value.__notes__[0]

    def test_full_disk_error_names_disk_and_remedy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*args: object, **kwargs: object) -> object:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        shuffler = HashShuffler("s", memory_limit=500, temporary_folder=tmp_path)
        monkeypatch.setattr("builtins.open", full)
        with pytest.raises(StorageError, match=f"{tmp_path}.*No space left.*free some space") as caught:
            for i in range(1000):
                shuffler.add(i, bytes(100))
        assert "temporary_folder" in caught.value.__notes__[0]
        monkeypatch.undo()
        shuffler.close()
        assert list(tmp_path.iterdir()) == []

    def test_unlistable_folder_still_accepts_spill_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Files that killed processes have left in the folder then stay there."""

        def refused(path: str) -> list[str]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

        shuffler = HashShuffler("s", memory_limit=500, temporary_folder=tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", refused)
            for i in range(20):
                shuffler.add(i, bytes(100))
        assert len(drained(shuffler)) == 20
        shuffler.close()

    def test_uncreatable_folder_raises_storage_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        shuffler = HashShuffler("s", memory_limit=10, temporary_folder=tmp_path / "file" / "below")
        shuffler.add(1, b"record")
        with pytest.raises(StorageError, match="file/below"):
            shuffler.add(2, b"record")


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        HashShuffler("s", memory_limit=0)
    with pytest.raises(ValueError, match="on_duplicate must be 'raise', 'first' or 'last', not 'skip'"):
        HashShuffler("s", on_duplicate="skip")  # type: ignore[arg-type]  # deliberately wrong
