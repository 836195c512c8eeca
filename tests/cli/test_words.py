"""What the library advises in Python is said in the words of the command line."""

from __future__ import annotations

import pytest

from asyncrec.cli._words import in_options


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("asyncrec.recover('spool') uploads it", "'asyncrec recover spool' uploads it"),
        ("asyncrec.recover('a', to='s3://b/p') sends", "'asyncrec recover a --to s3://b/p' sends"),
        ("asyncrec.recover('a', to='s3://b/p', abandon=['w'])", "'asyncrec recover --abandon w a --to s3://b/p'"),
        ("asyncrec.recover('spool', to=...) uploads", "'asyncrec recover spool --to ...' uploads"),
        ("asyncrec.recover('a spool') uploads it", "\"asyncrec recover 'a spool'\" uploads it"),
        ("asyncrec.recover('d/pages', abandon=['w']) discards", "'asyncrec recover --abandon w d/pages' discards"),
        ("asyncrec.recover(abandon=) discards", "'asyncrec recover' with --abandon discards"),
        ("recover that spool (asyncrec.recover)", "recover that spool ('asyncrec recover')"),
    ],
)
def test_recover_is_the_command_as_it_is_typed(said: str, told: str) -> None:
    assert in_options(said) == told
