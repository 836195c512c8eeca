from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from warcio.cli import main as warcio_main


@pytest.fixture
def clean(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], None]:
    """Return a function that checks that ``warcio check`` finds nothing wrong with a file."""

    def check(path: Path) -> None:
        with pytest.raises(SystemExit) as ended:
            warcio_main(["check", str(path)])
        assert ended.value.code == 0
        assert "fail" not in capsys.readouterr().out

    return check
