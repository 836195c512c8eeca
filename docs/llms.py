"""A hook of MkDocs: ``llms.txt`` and ``llms-full.txt``, the pages for language models (llmstxt.org).

``llms.txt`` lists each page of the navigation with its first sentence. ``llms-full.txt`` holds the pages themselves,
with the signature and docstring of each name in the reference. Design pages are in neither: they explain decisions to
those who change asyncrec.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

DIRECTIVE = re.compile(r"^::: (asyncrec[\w.]*)\n(?:    .*\n)*", re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)


def sections(config: Path) -> Iterator[tuple[str, list[str]]]:
    """The sections of the navigation, each with the paths of its pages, in order."""
    start: list[str] = []
    for entry in yaml.safe_load(config.read_text("utf-8"))["nav"]:
        ((name, value),) = entry.items() if isinstance(entry, dict) else [("", entry)]
        if isinstance(value, str):
            start.append(value)
            continue
        if start:
            yield "Start here", start
            start = []
        yield name, [path for path in leaves(value) if not path.startswith("design/")]


def leaves(value: Any) -> Iterator[str]:
    """The paths in a part of the navigation."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from leaves(each)


def title_and_sentence(text: str) -> tuple[str, str]:
    """The heading of a page, and the first sentence below it that is prose; an empty one if there is none."""
    heading, _, body = COMMENT.sub("", text).partition("\n")
    body = re.sub(r"```.*?```", "", body, flags=re.DOTALL)
    prose = [part for part in re.split(r"\n\s*\n", body) if re.match(r"\s*[\w`*\[\"]", part) and "|" not in part]
    sentence = re.split(r"(?<=[.!?:])\s", " ".join(prose[0].split()), maxsplit=1)[0] if prose else ""
    return heading.removeprefix("# "), re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence)


def documented(name: str) -> str:
    """The signature and the docstring of a public name, and of the methods of a class."""
    try:
        found: Any = resolve_name(name)
    except (ModuleNotFoundError, AttributeError):  # an integration with what is not installed here
        return f"### {name}\n"
    lines = [f"### {name}{signature(found)}", inspect.getdoc(found) or ""]
    if inspect.isclass(found):
        for member, value in vars(found).items():
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                lines += [f"#### {name}.{member}{signature(value)}", inspect.getdoc(value) or ""]
    return "\n\n".join(filter(None, lines)) + "\n"


def signature(found: Any) -> str:
    try:
        return str(inspect.signature(found)) if callable(found) else ""
    except ValueError:  # a class of C
        return ""


def write(config: Path, docs: Path, site: Path) -> None:
    """Write both files into the folder ``site``."""
    index, full = [], []
    for section, paths in sections(config):
        lines = []
        for path in paths:
            text = (docs / path).read_text("utf-8")
            title, sentence = title_and_sentence(text)
            page = re.sub(r"README\.md$", "index.md", path).removesuffix(".md")
            lines.append(f"- [{title}]({page}.html)" + (f": {sentence}" if sentence else ""))
            full.append(DIRECTIVE.sub(lambda match: documented(match[1]), COMMENT.sub("", text)))
        if lines:
            index.append(f"## {section}\n\n" + "\n".join(lines))
    summary = (
        "# asyncrec\n\n> Write and read TFRecord files from async Python, on asyncio and trio, without TensorFlow: "
        "sharded data sets on local disk, S3, GCS and Azure, and class-balanced, shuffled, resumable batches of them.\n"
    )
    (site / "llms.txt").write_text("\n\n".join([summary.rstrip(), *index]) + "\n", "utf-8")
    (site / "llms-full.txt").write_text("\n\n".join([summary, *full]), "utf-8")


def on_post_build(config: Any) -> None:
    write(Path(config["config_file_path"]), Path(config["docs_dir"]), Path(config["site_dir"]))
