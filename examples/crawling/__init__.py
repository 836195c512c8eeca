"""What a crawler needs beside asyncrec; `crawl_site.py`, next to this folder, puts it together."""
