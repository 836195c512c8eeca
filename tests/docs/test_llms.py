"""`make docs` writes llms.txt and llms-full.txt with every page for users and every name in the reference."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import asyncrec

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("llms", ROOT / "docs/llms.py")
assert spec is not None
assert spec.loader is not None
llms = importlib.util.module_from_spec(spec)
spec.loader.exec_module(llms)


def test_llms_files_list_each_page_and_document_each_name(tmp_path: Path) -> None:
    llms.write(ROOT / "mkdocs.yml", ROOT / "docs", tmp_path)
    index, full = ((tmp_path / name).read_text() for name in ("llms.txt", "llms-full.txt"))
    assert "(how-to/crawl.html): All tasks share one writer, which you open once." in index
    for page, said in {
        "watch-a-crawl": "`asyncrec watch` shows the speed of each writer of a crawl, ",
        "write-to-s3": "With a plugin, you can write data sets to S3 or a compatible store, ",
        "write-to-gcs": "With a plugin, you can write data sets to Google Cloud Storage, ",
        "write-to-azure": "With a plugin, you can write data sets to Azure Blob Storage, ",
    }.items():
        assert f"(how-to/{page}.html): {said}" in index
    assert "(reference/index.html)" in index
    assert "design/" not in index
    assert not [name for name in asyncrec.__all__ if f"### asyncrec.{name}" not in full]
    assert "#### asyncrec.Dataset.shuffled(" in full
    assert "\n::: " not in full
    assert re.findall(r"^### (asyncrec\.\S*)\n\s*(?=#|\Z)", full, re.MULTILINE) == []
    assert " at 0x" not in full
    assert re.findall(r"^ *_\w+ {2,}.*", full, re.MULTILINE) == [], "private modules, as a docstring lists them"
    assert "progress: 'Progress' = ..., " in full


def test_unimportable_names_are_documented_from_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(llms, "resolve_name", refuse)
    shard = llms.documented("asyncrec.integrations.torch.worker_shard")
    assert shard.startswith("### asyncrec.integrations.torch.worker_shard() -> tuple[int, int]\n\nReturn ``(i, n)``")
    shuffled = llms.documented("asyncrec.integrations.torch.ShuffledDataset")
    assert shuffled.startswith("### asyncrec.integrations.torch.ShuffledDataset(path: ")
    assert "ShuffledDataset.set_epoch(self, epoch: int) -> None\n\nChoose the order" in shuffled
    assert "``ray.data.Dataset``" in llms.documented("asyncrec.integrations.ray.read_asyncrec")
    with pytest.raises(LookupError, match="no class or function"):
        llms.documented("asyncrec.integrations.torch.nothing")


@pytest.mark.parametrize("imported", [True, False])
def test_kit_shows_inherited_cases(imported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not imported:
        monkeypatch.delattr("asyncrec.testing.__getattr__")
    kit = llms.documented("asyncrec.testing.StorageConformance", inherited=True)
    assert "The cases that every storage must pass." in kit
    for hook in ("open_storage", "raw_put", "raw_get", "raw_list", "raw_unfinished"):
        assert kit.count(f"#### asyncrec.testing.StorageConformance.{hook}(self") == 1


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("A page says what it is about. More.", "A page says what it is about."),
        (
            "You need this:\n\n```sh\nls\n```\n\nIt lists [the files](x.md) of a folder.",
            "It lists the files of a folder.",
        ),
        ("It is so. It lists the files of a folder.", "It lists the files of a folder."),
        ("`from asyncrec.plugins import Command, Format, hookimpl`.", ""),
        ("See [Read a data set](x.md) and [Resume](y.md).", ""),
    ],
)
def test_summary_is_first_meaningful_sentence(body: str, sentence: str) -> None:
    assert llms.title_and_sentence(f"# Title\n\n{body}\n") == ("Title", sentence)
