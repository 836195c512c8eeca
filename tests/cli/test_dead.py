"""What is said of dead writers fits where their records are: on a disk, in a spool, or nowhere."""

from __future__ import annotations

from asyncrec.cli._dead import of_the_dead, of_the_dead_shortly


def test_on_a_disk_the_next_writer_or_recover_sees_to_it() -> None:
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


def test_of_one_with_a_spool_the_spool_is_recovered() -> None:
    (said,) = of_the_dead("s3://crawl/pages", [("rolling", True)])
    assert "'asyncrec recover SPOOL --to s3://crawl/pages'" in said
    assert of_the_dead_shortly("s3://crawl/pages", [("'asyncrec recover SPOOL'", True)]) == "'asyncrec recover SPOOL'"


def test_in_a_store_without_a_spool_what_was_not_uploaded_is_said_to_be_lost() -> None:
    spooled, bare = of_the_dead("s3://crawl/pages", [("rolling", False), ("rolling", True)])
    assert "SPOOL" in spooled
    assert "Records that dead writers had not uploaded are lost" in bare
    assert "'asyncrec recover s3://crawl/pages'" in bare
    assert "'asyncrec uploads s3://crawl'" in bare
    shortly = of_the_dead_shortly("s3://crawl/pages", [("'one'", False), ("'two'", True), ("'two'", True)])
    assert shortly.startswith("'one' and 'two'; records not yet uploaded are lost")
    assert "are lost" in shortly


def test_nobody_dead_is_nothing_said() -> None:
    assert of_the_dead("s3://crawl/pages", []) == []
