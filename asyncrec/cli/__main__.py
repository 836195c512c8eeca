"""Run the command line by ``python -m asyncrec.cli``, for use if the ``asyncrec`` script is not on the PATH."""

from __future__ import annotations

import sys

from asyncrec.cli import main

sys.exit(main())
