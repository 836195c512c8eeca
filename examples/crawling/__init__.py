"""The parts of a crawler other than asyncrec. `crawl_site.py`, next to this folder, combines them."""
