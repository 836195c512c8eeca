"""All distributions have the same version and name their source, and a release changes the version everywhere."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]


def module(name: str):  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def project(path: Path) -> dict[str, object]:
    return dict(tomllib.loads(path.read_text("utf-8"))["project"])


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_distribution_shares_version_and_urls_with_core(path: Path) -> None:
    core, own = project(PROJECTS[0]), project(path)
    assert own["version"] == core["version"]
    assert own["urls"] == core["urls"]
    assert str(own["requires-python"]).startswith(str(core["requires-python"]))  # may be a later patch
    needed = [each for each in own["dependencies"] if str(each).startswith("asyncrec")]  # type: ignore[attr-defined]
    assert needed == ([] if path == PROJECTS[0] else [f"asyncrec>={core['version']}"])


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_distribution_keywords_are_plain_words(path: Path) -> None:
    for word in project(path).get("keywords", ()):  # type: ignore[attr-defined]  # a list
        assert str(word).replace(" ", "").isalnum(), word


def test_readme_describes_purpose_of_every_extra() -> None:
    """A single table lists every extra with a description, and no others."""
    readme = (ROOT / "README.md").read_text("utf-8")
    _, _, after = readme.partition("| extra | purpose | folder to add in a checkout |\n|---|---|---|\n")
    rows = [line.strip("|").split("|") for line in after.partition("\n\n")[0].splitlines()]
    named = [extra for extras, *_ in rows for extra in re.findall(r"`(\w+)`", extras)]
    assert sorted(named) == sorted(project(PROJECTS[0])["optional-dependencies"])  # type: ignore[call-overload]  # a table
    assert all(len(purpose.split()) > 1 for _, purpose, _ in rows)


@pytest.mark.parametrize("path", PROJECTS[1:], ids=lambda path: path.parent.name)
def test_plugin_carries_license(path: Path) -> None:
    assert (path.parent / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_release_replaces_every_occurrence_of_version(path: Path) -> None:
    text = module("release").with_version(path.read_text("utf-8"), "7.8.9")
    old = str(project(path)["version"])
    assert old not in text
    assert tomllib.loads(text)["project"]["version"] == "7.8.9"


def test_release_moves_unreleased_changes_under_its_heading() -> None:
    changes = "# Changes\n\n## Unreleased\n\n- A thing.\n\n## 0.1.0 (2026-01-01)\n\n- First.\n"
    assert module("release").with_heading(changes, "0.2.0", "2026-02-02") == (
        "# Changes\n\n## Unreleased\n\n## 0.2.0 (2026-02-02)\n\n- A thing.\n\n## 0.1.0 (2026-01-01)\n\n- First.\n"
    )


@pytest.mark.parametrize("changes", ["# Changes\n", "## Unreleased\n\n## 0.1.0\n", "## Unreleased\n"])
def test_release_without_changelog_entries_is_rejected(changes: str) -> None:
    with pytest.raises(ValueError, match="Unreleased"):
        module("release").with_heading(changes, "0.2.0", "2026-02-02")


@pytest.mark.parametrize(
    ("text", "links"), [("[a](docs/a.md) ![b](https://c/d.png)", ["docs/a.md"]), ("[a](https://b/c) [d](#e)", [])]
)
def test_readme_links_valid_only_in_checkout_are_found(text: str, links: list[str]) -> None:
    assert module("dist").relative_links(text) == links
