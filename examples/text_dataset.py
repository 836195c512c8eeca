"""Write the docstrings of Python's standard library as a text data set with two splits.

    python examples/text_dataset.py [FOLDER]

The generator is an ordinary function. It parses source files in a worker thread, which keeps the event loop free. All
docstrings of a module are in the same split, so that no test module is seen in training.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import anyio
from rich.console import Console
from rich.table import Table

import asyncrec

MODULES = 80


def docstrings(split: str, library: Path, modules: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every docstring in the modules of the split: a key, and the features."""
    for path in sorted(library.glob("*.py"))[:modules]:
        if (crc32(path.name.encode()) % 5 == 0) != (split == "test"):
            continue
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            text = ast.get_docstring(node)
            if text:
                line = getattr(node, "lineno", 0)
                yield (
                    f"{path.stem}:{line}",
                    {
                        "text": text,
                        "words": len(text.split()),
                        "origin": {"module": path.stem, "kind": type(node).__name__, "line": line},
                    },
                )


async def main(folder: str, modules: int = MODULES) -> None:
    dataset = f"{folder}/docstrings"
    library = Path(sysconfig.get_path("stdlib"))
    for split in ("train", "test"):
        writer = asyncrec.DatasetWriter(
            docstrings, None, dataset, split, num_shards=2, compression="GZIP", library=library, modules=modules
        )
        await writer.create_records()

    table = Table("split", "examples", "modules", "words", "the longest")
    for split in ("train", "test", "train[:10%]+test[-5:]"):
        names, words, longest = set(), 0, (0, "")
        async with asyncrec.open_split(dataset, split) as reader:
            async for example in reader:
                names.add(example["origin/module"])
                words += example["words"]
                longest = max(longest, (example["words"], f"{example['origin/module']}:{example['origin/line']}"))
            table.add_row(split.replace("[", r"\["), f"{len(reader):,}", str(len(names)), f"{words:,}", longest[1])
    Console(width=100).print(table)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "demo-data")
