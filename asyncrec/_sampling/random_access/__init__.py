"""`Dataset` reads any record of a data set, by its number or its key.

opening          `asyncrec.open_dataset`
dataset          `asyncrec.Dataset`
scan_manifest    a manifest for shards that have none
indexes          where the records of each shard begin
lookup           records by their numbers: at once, in few hops, or as it must be
local_shards     plain shards of a local folder, whose files stay open
range_reader     the byte ranges of wanted records, read and cut
read_cost        which of them are worth one read of a far store
received         what came of a shard, until it is cut or decompressed
frame_extractor  records from bytes that were read, pure
shard_files      the shards as stored, or as cached on disk
key_index        the numbers of the records that have a key
key_files        the keys of each shard, from its own file
newest           which of the records with one key is the newest
row_table        rows grouped in bounded memory
record_numbers   the numbers that were asked for, checked and each once; the blocks they are shuffled by; pure
"""
