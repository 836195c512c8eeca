from __future__ import annotations

import sys

import pytest

from asyncrec._datasets.progress import Progress


def test_progress_passes_batches_unchanged_with_or_without_bar(capsys: pytest.CaptureFixture[str]) -> None:
    batches = [[b"a", b"b"], [b"c"]]
    for show in (False, True, None):
        with Progress("counting", 3, show=show) as progress:
            assert list(progress.counted(iter(batches))) == batches
        assert ("3/3" in capsys.readouterr().err) == (show is True)


def test_progress_without_rich_is_silent_unless_requested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress("counting", None, show=None) as progress:
        progress.advance()
    assert capsys.readouterr().err == ""
    with pytest.raises(ImportError):
        with Progress("counting", None, show=True):
            pass
