"""What pyproject.toml cannot say yet: the C module. Where there is no compiler, asyncrec installs without it."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("asyncrec.framing._native", ["asyncrec/framing/_native.c"], optional=True)])
