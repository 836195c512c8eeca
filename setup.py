"""What pyproject.toml cannot say: the C module, which is left out where there is no compiler, and the README's links.

The README is read beside the sources and on a package index. There, what it links to is not beside it: links become
those of the repository's pages, pictures those of its files.
"""

import re
import tomllib
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).parent


def readme() -> str:
    urls = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]["urls"]

    def absolute(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        if re.match(r"https?:|#|mailto:", target):
            return link[0]
        return f"{picture}[{text}]({urls['Source']}/{'raw' if picture else 'blob'}/main/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", absolute, (HERE / "README.md").read_text("utf-8"))


setup(
    ext_modules=[Extension("asyncrec._framing._native", ["asyncrec/_framing/_native.c"], optional=True)],
    long_description=readme(),
    long_description_content_type="text/markdown",
)
