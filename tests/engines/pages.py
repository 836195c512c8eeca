"""Run the code of a how-to page from top to bottom, and compare its output with the page."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

__all__ = ["run_page"]

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$(?:\n+^```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL)


def run_page(page: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCK.finditer((PAGES / f"{page}.md").read_text("utf-8")):
        code = compile(block["code"], page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with redirect_stdout(printed):
            result = eval(code, namespace)
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(result)
        if block["output"] is not None:
            same = doctest.OutputChecker().check_output(block["output"], printed.getvalue(), doctest.ELLIPSIS)
            assert same, f"{block['code']}printed\n{printed.getvalue()}and not\n{block['output']}"
