"""Rendering of findings as a page. Equal findings result in equal pages."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from xml.etree.ElementTree import Element

from .contents import classes_card, features_section, other_records_section, sizes_card
from .findings import Findings
from .html import document, el
from .humans import count, day, share, size
from .storing import history_section, shards_section

# The maximum number of faults on the page. `asyncrec verify` lists all of them.
_FAULTS = 50


def render(findings: Findings, *, made_at: datetime, version: str) -> str:
    """Return the HTML of the page. The style sheet is read from the package."""
    name = findings.path.rstrip("/").rpartition("/")[2] or findings.path
    body = el(
        "main",
        _header(findings, name),
        _tiles(findings),
        _damage(findings),
        el("div", classes_card(findings), sizes_card(findings), class_="pair"),
        features_section(findings),
        other_records_section(findings),
        shards_section(findings),
        history_section(findings),
    )
    return document(
        title=f"{name} · asyncrec report",
        description=_sentence(findings),
        stylesheet=files("asyncrec_report").joinpath("report.css").read_text("utf-8"),
        body=[body, _footer(findings, made_at, version)],
    )


# The top ------------------------------------------------------------------------------------------------------------


def _header(findings: Findings, name: str) -> Element:
    return el(
        "header",
        el("p", "Data set report", class_="over"),
        el("h1", name),
        el("p", el("code", findings.path), class_="path"),
        el("p", _sentence(findings), class_="lede"),
        el("p", _read_sentence(findings), class_="lede quiet"),
        class_="top",
    )


def _sentence(findings: Findings) -> str:
    records = findings.records
    many = "an unknown number of records" if records is None else count(records, "record")
    text = f"{many} in {count(len(findings.shards), 'shard')}, {size(findings.bytes)} as stored"
    commits = sorted(shard.shard.entry.committed for shard in findings.shards if shard.shard.entry)
    if commits and commits[0] > "1971":
        first, last = day(commits[0]), day(commits[-1])
        text += f"; written on {first}" if first == last else f"; written from {first} to {last}"
    writers = [writer for dataset in findings.selection.datasets for writer in dataset.manifest.writers.values()]
    still_open = sum(not writer.closed for writer in writers)
    return text + (f"; {count(still_open, 'writer')} not closed yet." if still_open else ".")


def _read_sentence(findings: Findings) -> str:
    profile = findings.profile
    if not findings.shards:
        return "The data set is empty: no shard has been committed."
    if not findings.sampled:
        whole = "All records were read, and every checksum "
        return whole + ("was checked: the damage is listed below." if findings.faults else "holds.")
    where = "drawn evenly from all shards" if findings.evenly else "from the beginning of each shard"
    part = f" ({share(profile.records, findings.records)})" if findings.records else ""
    return (
        f"This page is based on a sample: {count(profile.records, 'record')}{part}, {where}. Records, features and "
        "damage are those of the sample; counts and sizes of shards are complete."
    )


def _tiles(findings: Findings) -> Element:
    profile = findings.profile
    records = findings.records
    tiles = [
        _tile("Records", "?" if records is None else f"{records:,}", _mean_size(findings)),
        _tile("Shards", f"{len(findings.shards):,}", _shard_note(findings)),
        _tile("Stored", size(findings.bytes), _compressions(findings)),
        _ratio(findings),
        _tile("Features", f"{len(profile.features) + profile.more_features:,}", _schema_note(findings)),
        _state(findings),
    ]
    return el("section", tiles, class_="tiles", aria_label="Key figures")


def _tile(name: str, value: str, note: str, kind: str = "") -> Element:
    return el(
        "div",
        el("h2", name),
        el("p", value, class_="value"),
        el("p", note, class_="note"),
        class_=f"tile {kind}".strip(),
    )


def _mean_size(findings: Findings) -> str:
    sizes = findings.profile.sizes
    return f"{size(sizes.mean)} on average" if sizes.count else "none"


def _shard_note(findings: Findings) -> str:
    return f"{size(findings.bytes / len(findings.shards))} on average" if findings.shards else "none"


def _compressions(findings: Findings) -> str:
    names = sorted(
        {shard.compression or "not compressed" for shard in findings.shards if shard.compression is not None}
    )
    return " and ".join(names) if names else "nothing"


def _ratio(findings: Findings) -> Element:
    unpacked = findings.unpacked
    if unpacked is None or not findings.bytes:
        return _tile("Unpacked", "–", "nothing was read")
    about = "about " if findings.sampled else ""
    ratio = unpacked / findings.bytes
    note = f"{about}{ratio:.1f} times the stored size" if ratio > 1.005 else "the same as stored"
    return _tile("Unpacked", size(unpacked), note)


def _schema_note(findings: Findings) -> str:
    profile = findings.profile
    if not profile.records:
        return "in the schema" if profile.schema else "none seen"
    if not profile.features:
        return "the records are not Examples"
    return "described by a schema" if profile.schema else "no schema is stored"


def _state(findings: Findings) -> Element:
    faults = findings.faults
    if faults:
        return _tile("Damage", count(len({fault.path for fault in faults}), "shard"), "see below", "bad")
    if not findings.profile.records:
        return _tile("Damage", "–", "nothing was read")
    return _tile("Damage", "none", f"in {count(findings.profile.records, 'record')} read", "good")


def _damage(findings: Findings) -> Element | None:
    faults = findings.faults
    if not faults and not findings.notes:
        return None
    rows = [el("li", el("code", fault.path), el("span", fault.message)) for fault in faults[:_FAULTS]]
    rows += [el("li", el("span", note)) for note in findings.notes]
    more = f"and {len(faults) - _FAULTS:,} more" if len(faults) > _FAULTS else None
    return el(
        "section",
        el("h2", "Damage" if faults else "Notes"),
        el("p", _damage_lede(findings), class_="lede") if faults else None,
        el("ul", rows, class_="faults"),
        el("p", more, class_="note") if more else None,
        class_="alert" if faults else "alert mild",
    )


def _damage_lede(findings: Findings) -> str:
    return "'asyncrec repair' saves the intact records; 'asyncrec verify' reads everything and lists all damage."


def _footer(findings: Findings, made_at: datetime, version: str) -> Element:
    then = made_at.astimezone(UTC)
    return el(
        "footer",
        el(
            "p",
            f"Made by asyncrec {version} on ",
            el("time", f"{then.day} {then:%B %Y, %H:%M} UTC", datetime=then.isoformat()),
            ". This page loads nothing and runs nothing; records are shown as text, and images only where their bytes "
            "are a PNG, JPEG, GIF or WebP.",
        ),
    )
