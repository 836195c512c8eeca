"""On the site, a public name in backticks leads to the reference; what could be something else does not."""

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
def test_a_public_name_is_found_as_a_page_writes_it(code: str, anchor: str) -> None:
    assert NAMES.anchor(code) == anchor


@pytest.mark.parametrize(
    "code",
    [
        "recover", "sample", "copy", "key=url", "make demo", "asyncrec info data", "WriteReport", "writer.flush()",
        "x.Schema",
    ],
)  # fmt: skip
def test_what_could_be_a_command_an_option_or_anothers_is_not_linked(code: str) -> None:
    assert NAMES.anchor(code) is None


def test_a_name_is_linked_once_in_a_section_and_never_in_a_link_a_heading_or_a_listing() -> None:
    name = "<code>open_writer</code>"
    link = f'<autoref identifier="asyncrec.open_writer" optional>{name}</autoref>'
    kept = f"<pre>{name}</pre><a href='b'>{name}</a>"
    html = f"{kept}<p>{name} {name}</p><h2>{name}</h2>{name}"
    assert link_names.linked(html, NAMES) == f"{kept}<p>{link} {name}</p><h2>{name}</h2>{link}"


def test_a_page_about_another_system_links_what_is_ours_alone() -> None:
    html = "<code>RecordWriter</code> <code>asyncrec.RecordWriter</code>"
    linked = link_names.linked(html, NAMES, ours_alone=True)
    assert linked.startswith("<code>RecordWriter</code> <autoref")
