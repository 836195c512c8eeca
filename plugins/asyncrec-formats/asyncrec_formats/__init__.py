"""The formats Parquet and WARC for `asyncrec.tools.convert`.

plugin.py         the hook, which returns the formats and the functions that open them
parquet.py        Parquet, with pyarrow; parquet_rows.py reads as many rows at a time as fit in memory
warc.py           WARC, with warcio; http_body.py decodes the body of a response
"""
