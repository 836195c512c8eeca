"""Class-balanced batches of the crawled pages: each has the same number of pages from each of a few packages.

A model would be trained on such batches; this example only prints them.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from rich import box
from rich.console import Console
from rich.table import Table

import asyncrec

BATCHES = 3
PACKAGES = 4  # in a batch
PAGES = 2  # of each package


async def show_balanced_batches(dataset_path: str) -> None:
    """Draw the first few batches, and print them as a table.

    Entering the sampler reads the package of every page. The result is cached beside the data set's index.
    """
    async with asyncrec.open_dataset(dataset_path) as dataset:
        schema = dataset.schema
        assert schema is not None, "the crawl writes it"
        async with asyncrec.ClassBalancedSampler(dataset, 1, PAGES, class_feature="package") as sampler:
            packages = len(sampler.classes)
        table = Table(title=f"Balanced batches, of {packages:,} packages", title_justify="left", box=box.SIMPLE_HEAD)
        table.caption, table.caption_justify = "If a package has one page, the batch repeats it.", "left"
        for name in ("Batch", "Package", "Pages"):
            table.add_column(name, overflow="fold")
        wide = min(PACKAGES, packages)
        async with asyncrec.ClassBalancedSampler(dataset, wide, PAGES, class_feature="package") as sampler:
            for number in range(1, BATCHES + 1):
                columns = schema.decode_batch(await anext(sampler))
                for at in range(0, wide * PAGES, PAGES):
                    paths = [urlsplit(url).path for url in columns["url"][at : at + PAGES]]
                    last = at == (wide - 1) * PAGES
                    package = columns["package"][at] or "(top)"
                    table.add_row("" if at else str(number), package, "\n".join(paths), end_section=last)
    Console().print(table)
