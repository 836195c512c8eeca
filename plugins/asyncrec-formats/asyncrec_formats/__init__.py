"""This plugin brings Parquet and WARC, as formats of `asyncrec.tools.convert`.

plugin.py         the hook: the formats, and what each is opened with
parquet.py        Parquet, by pyarrow; parquet_rows.py: its rows, as many at once as memory has room for
warc.py           WARC, by warcio; http_body.py: the body of a response, without its encodings
"""
