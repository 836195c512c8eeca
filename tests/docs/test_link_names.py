"""On the site, public names in backticks link to the reference, unless they are ambiguous."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("link_names", DOCS / "link_names.py")
assert spec is not None
assert spec.loader is not None
link_names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(link_names)

NAMES = link_names.names_of(DOCS)


@pytest.mark.parametrize(
    ("code", "anchor"),
    [
        ("open_writer", "asyncrec.open_writer"),
        ('open_sharded_writer(num_shards=4, schema={"a": 1})', "asyncrec.open_sharded_writer"),
        ("await asyncrec.read_records(path)", "asyncrec.read_records"),
        ("Schema.decode(record)", "asyncrec.Schema.decode"),
        ("tools.copy", "asyncrec.tools.copy"),
        ("recover(path)", "asyncrec.recover"),
        ("asyncrec.recover", "asyncrec.recover"),
        ("DecodeError", "asyncrec.errors.DecodeError"),
    ],
)
def test_anchor_resolves_public_name_in_page_spelling(code: str, anchor: str) -> None:
    assert NAMES.anchor(code) == anchor


@pytest.mark.parametrize(
    "code",
    [
        "recover", "sample", "copy", "key=url", "make demo", "asyncrec info data", "WriteReport", "writer.flush()",
        "x.Schema",
    ],
)  # fmt: skip
def test_anchor_ignores_ambiguous_or_foreign_names(code: str) -> None:
    assert NAMES.anchor(code) is None


def test_name_is_linked_once_per_section_outside_other_markup() -> None:
    name = "<code>open_writer</code>"
    link = f'<autoref identifier="asyncrec.open_writer" optional>{name}</autoref>'
    kept = f"<pre>{name}</pre><a href='b'>{name}</a>"
    html = f"{kept}<p>{name} {name}</p><h2>{name}</h2>{name}"
    assert link_names.linked(html, NAMES) == f"{kept}<p>{link} {name}</p><h2>{name}</h2>{link}"


def test_page_about_other_system_links_own_names_only() -> None:
    html = "<code>RecordWriter</code> <code>asyncrec.RecordWriter</code>"
    linked = link_names.linked(html, NAMES, ours_alone=True)
    assert linked.startswith("<code>RecordWriter</code> <autoref")
