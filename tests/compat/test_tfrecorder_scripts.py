"""Scripts from TFRecorder's README run with only their imports changed, and print the same output.

``tfrecorder_scripts/*.out`` is the output of TFRecorder itself (gdoras/TFRecorder a063660, TensorFlow 2.21), produced
by:

    PYTHONPATH=TFRecorder python -c "import logging, runpy; logging.disable(50); runpy.run_path('SCRIPT')"
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = sorted((Path(__file__).parent / "tfrecorder_scripts").glob("*.py"))


def run(script: Path) -> dict[str, Any]:
    source, changed = re.subn(r"(?m)^(import|from) tfrecorder\.", r"\1 asyncrec.compat.tfrecorder.", script.read_text())
    assert changed
    namespace: dict[str, Any] = {"__name__": "script"}
    exec(compile(source, script.name, "exec"), namespace)
    return namespace


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_output_is_unchanged_after_changing_imports(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = run(script)
    if "database" in namespace:
        namespace["database"].close()
    assert capsys.readouterr().out.splitlines() == script.with_suffix(".out").read_text().splitlines()
