"""Every Python block in the documentation runs, and prints the output shown on the page.

The blocks of a page share a namespace, and run in order, on asyncio and on trio, in an empty folder. A block may use
``await`` at its top level, as in a notebook; a block that does not runs in a thread, so that it can start its own event
loop. A ```text block directly after a Python block is its expected output, in which ``...`` matches anything. A block
that cannot run here is preceded by ``<!-- not run: the reason -->``.
"""

from __future__ import annotations

import ast
import doctest
import inspect
import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}

BLOCK = re.compile(
    r"(?:^<!-- not run: *(?P<reason>.*?) *-->\n+)?"
    r"^```python[^\n]*\n(?P<code>.*?)^```$"
    r"(?:\n+^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    line: int
    code: str
    output: str | None
    reason: str | None

    async def run(self, page: str, namespace: dict[str, Any]) -> None:
        # The leading blank lines make line numbers in tracebacks those of the page.
        source = "\n" * self.line + self.code
        code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with redirect_stdout(printed):
            if code.co_flags & inspect.CO_COROUTINE:
                await eval(code, namespace)
            else:
                await to_thread.run_sync(exec, code, namespace)
        if self.output is not None:
            same = doctest.OutputChecker().check_output(self.output, printed.getvalue(), doctest.ELLIPSIS)
            assert same, f"{page}:{self.line} printed\n{printed.getvalue()}and not\n{self.output}"


def snippets_of(text: str) -> list[Snippet]:
    return [
        Snippet(text[: match.start("code")].count("\n"), match["code"], match["output"], match["reason"])
        for match in BLOCK.finditer(text)
    ]


@pytest.mark.slow(but=["README", "tutorial", "coming-from", "how-to/re", "how-to/s", "how-to/train-with", "how-to/use"])
@pytest.mark.anyio
@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "```python" in text])
async def test_snippets_of_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for snippet in snippets_of(PAGES[page]):
        if snippet.reason is None:
            await snippet.run(page, namespace)


@pytest.mark.parametrize("page", PAGES)
def test_snippet_test_finds_every_python_block(page: str) -> None:
    """A block that is indented or not closed would not be found."""
    text = PAGES[page]
    assert len(snippets_of(text)) == len(re.findall(r"```python", text))
    assert all(snippet.reason != "" for snippet in snippets_of(text)), "a block that is not run needs its reason"


@pytest.mark.anyio
async def test_snippet_with_unexpected_output_fails() -> None:
    (snippet,) = snippets_of("```python\nprint('a', 2)\n```\n\n```text\na 1\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1 printed"):
        await snippet.run("page.md", {})


@pytest.mark.anyio
async def test_snippet_may_await_or_start_loop() -> None:
    text = """
```python
import anyio
await anyio.sleep(0)
```
```python
async def main(): return 3
print(anyio.run(main))
```
```text
3
```
"""
    namespace: dict[str, Any] = {}
    for snippet in snippets_of(text):
        await snippet.run("page.md", namespace)


def test_home_page_begins_with_readme_examples() -> None:
    """These snippets run in the README's test, which crawls a site; the home page only shows them."""
    shown = [snippet.code for snippet in snippets_of(PAGES["docs/index.md"])]
    assert len(shown) == 2
    assert [code for code in shown if f"```python\n{code}```" not in PAGES["README.md"]] == []
