"""A pytest plugin that makes tensorboardX's own tests use our record writer."""

from __future__ import annotations

from asyncrec.compat.tensorboardx import install

install()
