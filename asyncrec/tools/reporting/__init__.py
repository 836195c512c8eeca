"""What `asyncrec.tools.report` is made of: reading (``gather``), counting (``profile``), showing (``page``)."""
