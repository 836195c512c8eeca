"""``python -m asyncrec.cli``, which runs the command if its script is not on the PATH."""

from __future__ import annotations

import sys

from asyncrec.cli import main

sys.exit(main())
