"""A plugin of pytest's: tensorboardX's own tests then run with ours under it."""

from __future__ import annotations

from asyncrec.compat.tensorboardx import install

install()
