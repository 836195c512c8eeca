"""Messages about dead writers depend on where their records are: on a disk, in a spool, or nowhere."""

from __future__ import annotations

from asyncrec.cli._dead import of_the_dead, of_the_dead_shortly


def test_advice_on_disk_names_next_writer_or_recover() -> None:
    (said,) = of_the_dead("data/pages", [("rolling", False)])
    assert said == (
        "Records left by dead writers are not counted. To commit them, open a writer there, or run 'asyncrec recover "
        "data/pages'"
    )
    (said,) = of_the_dead("data/pages", [("rolling", False), ("fixed", False)])
    assert "open a writer" not in said
    assert (
        of_the_dead_shortly("data/pages", [("'asyncrec recover data/pages'", False)]) == "'asyncrec recover data/pages'"
    )


def test_advice_for_spooled_writer_names_spool() -> None:
    (said,) = of_the_dead("s3://crawl/pages", [("rolling", True)])
    assert "'asyncrec recover SPOOL --to s3://crawl/pages'" in said
    assert of_the_dead_shortly("s3://crawl/pages", [("'asyncrec recover SPOOL'", True)]) == "'asyncrec recover SPOOL'"


def test_advice_in_store_without_spool_reports_loss() -> None:
    spooled, bare = of_the_dead("s3://crawl/pages", [("rolling", False), ("rolling", True)])
    assert "SPOOL" in spooled
    assert "Records that dead writers had not uploaded are lost" in bare
    assert "'asyncrec recover s3://crawl/pages'" in bare
    assert "'asyncrec uploads s3://crawl'" in bare
    shortly = of_the_dead_shortly("s3://crawl/pages", [("'one'", False), ("'two'", True), ("'two'", True)])
    assert shortly.startswith("'one' and 'two'; records not yet uploaded are lost")
    assert "are lost" in shortly


def test_advice_without_dead_writers_is_empty() -> None:
    assert of_the_dead("s3://crawl/pages", []) == []
