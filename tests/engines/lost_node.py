"""Two nodes write, and one of them is removed with all its data: `python tests/engines/lost_node.py FOLDER`."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"

import pyarrow as pa
import ray
from ray.cluster_utils import Cluster

from asyncrec.integrations.arrow import read_batches, write_batches
from asyncrec.integrations.ray import read_asyncrec, write_asyncrec

STORE = 100 << 20


def main(folder: Path) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": STORE})
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()
    table = pa.table({"id": range(4000), "body": [b"%d" % n * 100 for n in range(4000)]})
    write_batches(folder / "source", table, max_shard_records=250)

    def slow(batch: Any) -> Any:
        time.sleep(1)
        return batch

    def take_away() -> None:
        while len(list(folder.glob("d-*.tfrecord"))) < 4:
            time.sleep(0.1)
        cluster.remove_node(node, allow_graceful=False)

    threading.Thread(target=take_away, daemon=True).start()
    rows = read_asyncrec(folder / "source", override_num_blocks=16).map_batches(slow, batch_size=None)
    report = write_asyncrec(rows, folder / "d", ray_remote_args={"scheduling_strategy": "SPREAD"})
    alive = sum(node["Alive"] for node in ray.nodes())
    ids = sorted(read_batches(folder / "d", columns=["id"]).read_all().column("id").to_pylist())
    print(report.rows, alive, ids == list(range(4000)), len(report.shards) == len(list(folder.glob("d-*.tfrecord"))))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
