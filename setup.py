"""Build the optional C module, and make the README's links absolute, which pyproject.toml cannot express.

Without a compiler, the C module is left out. On a package index the README's relative links would be broken, so they
become links to the repository's pages and files.
"""

import re
import sysconfig
import tomllib
from glob import glob
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


# One binary serves Python 3.11 and all later versions. Free-threaded builds have no stable ABI and need their own.
stable_abi = not sysconfig.get_config_var("Py_GIL_DISABLED")

native = Extension(
    "asyncrec._native._c",
    sorted(glob("asyncrec/_native/*.c")),
    depends=glob("asyncrec/_native/*.h"),
    define_macros=[("Py_LIMITED_API", "0x030B0000")] if stable_abi else [],
    extra_compile_args=["-O3", "-std=c11"],
    py_limited_api=stable_abi,
    optional=True,
)

setup(
    ext_modules=[native],
    long_description=readme(),
    long_description_content_type="text/markdown",
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if stable_abi else {},
)
