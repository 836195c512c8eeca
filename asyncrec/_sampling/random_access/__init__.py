"""`Dataset` reads any record of a data set by its number or its key.

opening          `asyncrec.open_dataset`
dataset          `asyncrec.Dataset`
scan_manifest    a manifest for shards that have none
indexes          the positions of the records in each shard
lookup           records by number, from memory if possible, otherwise with few thread hops or reads
local_shards     uncompressed shards of a local folder, whose files stay open
range_reader     reads the byte ranges of wanted records, and cuts the records from these ranges
received         bytes received from a shard, held until they are cut or decompressed
frame_extractor  extracts records from the bytes of a read; no I/O
shard_files      the shards as stored, or as cached on disk
key_index        the numbers of the records with a key
newest           the newest of the records with a key
row_table        rows grouped in bounded memory
record_numbers   the requested record numbers, checked and deduplicated; the blocks for shuffling; no I/O
"""
