"""``python -m asyncrec.cli`` runs the command where the script is not on the PATH."""

from __future__ import annotations

import sys

from asyncrec.cli import main

sys.exit(main())
