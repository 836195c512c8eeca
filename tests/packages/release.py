"""``make release VERSION=0.2.0``: set the version everywhere, give the changelog its heading, and create a git tag.

Nothing is published: pushing the tag starts .github/workflows/release.yml.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECTS = ("pyproject.toml", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("plugins/*/pyproject.toml")))


def with_version(text: str, version: str) -> str:
    """Return a pyproject.toml with this version of the distribution and of those of asyncrec that it requires."""
    text = re.sub(r'^version = "[^"]*"', f'version = "{version}"', text, count=1, flags=re.MULTILINE)
    return re.sub(r'"(asyncrec(?:-\w+)?)>=[^"]*"', rf'"\1>={version}"', text)


def with_heading(changes: str, version: str, today: str) -> str:
    """Return the changelog with the unreleased changes under a heading for this version.

    Raises:
        ValueError: nothing is written under "Unreleased".
    """
    head, found, rest = changes.partition("## Unreleased\n")
    if not found or rest.lstrip().startswith("## ") or not rest.strip():
        raise ValueError('CHANGELOG.md has nothing under "## Unreleased"')
    return f"{head}## Unreleased\n\n## {version} ({today})\n{rest}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    version = parser.parse_args().version
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+|\.dev\d+)?", version):
        sys.exit(f"VERSION={version}: not a version such as 0.2.0 or 0.3.0rc1")
    if subprocess.run(["git", "-C", ROOT, "status", "--porcelain"], capture_output=True, check=True).stdout:
        sys.exit("there are changes that are not committed")
    changes = ROOT / "CHANGELOG.md"
    try:
        changes.write_text(with_heading(changes.read_text("utf-8"), version, f"{datetime.now(UTC):%Y-%m-%d}"), "utf-8")
    except ValueError as error:
        sys.exit(str(error))
    for name in PROJECTS:
        path = ROOT / name
        path.write_text(with_version(path.read_text("utf-8"), version), "utf-8")
    subprocess.run(["git", "-C", ROOT, "commit", "--quiet", "--all", "--message", f"Version {version}"], check=True)
    subprocess.run(["git", "-C", ROOT, "tag", "--annotate", f"v{version}", "--message", version], check=True)
    print(f"Committed and tagged v{version}. To publish: git push --follow-tags")


if __name__ == "__main__":
    main()
