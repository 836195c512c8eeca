"""What pyproject.toml cannot say yet: the C module. Where there is no compiler, asyncrec installs without it."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("asyncrec._framing._native", ["asyncrec/_framing/_native.c"], optional=True)])
