"""A hook of MkDocs: ``llms.txt`` and ``llms-full.txt``, the pages for language models (llmstxt.org).

``llms.txt`` lists each page of the navigation with its first sentence. ``llms-full.txt`` holds the pages themselves,
with the signature and docstring of each name in the reference. Design pages are in neither: they explain decisions to
those who change asyncrec.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import ChainMap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

DIRECTIVE = re.compile(r"^::: (asyncrec[\w.]*)\n(?:    .*\n)*", re.MULTILINE)
AT_AN_ADDRESS = re.compile(r"<(?:[^<>]|<lambda>)* at 0x[0-9a-f]+>")
CODE = re.compile(r"`[^`]*`")
WORDS = 6  # the fewest words of a sentence that can describe a page
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)


def sections(config: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the sections of the navigation in order, each with the paths of its pages."""
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
    """Yield the paths in a part of the navigation."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from leaves(each)


def title_and_sentence(text: str) -> tuple[str, str]:
    """Return the heading of a page and the first sentence that `says_something`, or an empty sentence."""
    heading, _, body = COMMENT.sub("", text).partition("\n")
    body = re.sub(r"```.*?```", "", body, flags=re.DOTALL)
    prose = [part for part in re.split(r"\n\s*\n", body) if re.match(r"\s*[\w`*\[\"]", part) and "|" not in part]
    sentences = (each for part in prose for each in re.split(r"(?<=[.!?])\s", " ".join(part.split())))
    return heading.removeprefix("# "), next(
        (plain for each in sentences if says_something(plain := without_links(each))), ""
    )


def without_links(text: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def says_something(sentence: str) -> bool:
    """Return whether a sentence can stand alone: it is not an import, a reference, or the introduction of a list."""
    return (
        not sentence.endswith(":") and not sentence.startswith("See ") and len(CODE.sub("x", sentence).split()) >= WORDS
    )


def documented(name: str, *, inherited: bool = False) -> str:
    """Yield the signature and the docstring of a public name. A class is followed by its methods."""
    try:
        found: Any = resolve_name(name)
    except (ImportError, AttributeError):  # it needs a library that is not installed, such as PyTorch
        return "\n\n".join(filter(None, read_from_source(name, inherited=inherited))) + "\n"
    lines = [f"### {name}{signature(found)}", inspect.getdoc(found) or ""]
    if inspect.isclass(found):
        classes = [cls for cls in found.__mro__ if cls.__module__.startswith("asyncrec")] if inherited else [found]
        members = dict(ChainMap(*(dict(vars(cls)) for cls in classes)))
        for member, value in members.items():
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                lines += [f"#### {name}.{member}{signature(value)}", inspect.getdoc(value) or ""]
    return "\n\n".join(filter(None, lines)) + "\n"


def of_directive(match: re.Match[str]) -> str:
    return documented(match[1], inherited="inherited_members: true" in match[0])


def signature(found: Any) -> str:
    try:
        text = str(inspect.signature(found)) if callable(found) else ""
    except ValueError:  # a class defined in C
        return ""
    return AT_AN_ADDRESS.sub("...", text)


def read_from_source(name: str, *, inherited: bool) -> Iterator[str]:
    """Yield the same as `documented`, from the source. Raise LookupError if no source defines the name."""
    module, node = definition(name)
    if not isinstance(node, ast.ClassDef):
        yield f"### {name}{written_signature(node)}"
        yield ast.get_docstring(node) or ""
        return
    classes = list(written_bases(module, node))
    inits = (member for cls in classes for member in methods(cls) if member.name == "__init__")
    yield f"### {name}{written_signature(next(inits, None), bound=True)}"
    yield ast.get_docstring(node) or ""
    seen = set()
    for member in (member for cls in (classes if inherited else [node]) for member in methods(cls)):
        if member.name.startswith("_") or member.name in seen:
            continue
        seen.add(member.name)
        is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in member.decorator_list)
        yield f"#### {name}.{member.name}{'' if is_property else written_signature(member)}"
        yield ast.get_docstring(member) or ""


def definition(name: str) -> tuple[str, Definition]:
    """Return the module that defines a public name, which may differ from the public module, and the syntax node."""
    module, _, last = name.rpartition(".")
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8")))) if path.exists() else []
    for node in nodes:
        if isinstance(node, Definition) and node.name == last:
            return module, node
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == last for each in node.names):
            return definition(f"{node.module}.{last}")
    raise LookupError(f"{name}: no class or function of this name in {path}")


def written_bases(module: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """Yield a class and its bases in asyncrec, approximately in the order in which Python looks up names."""
    yield node
    for base in node.bases:
        with suppress(LookupError):  # a base from another library, such as PyTorch
            if isinstance(base, ast.Name):
                where, found = definition(f"{module}.{base.id}")
                if isinstance(found, ast.ClassDef):
                    yield from written_bases(where, found)


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def written_signature(node: ast.FunctionDef | ast.AsyncFunctionDef | None, *, bound: bool = False) -> str:
    """Return a signature as written in the source; ``bound`` leaves out ``self``."""
    if node is None:
        return ""
    if bound:
        node.args.args = node.args.args[1:]
    return f"({ast.unparse(node.args)})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


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
            full.append(DIRECTIVE.sub(of_directive, COMMENT.sub("", text)))
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
