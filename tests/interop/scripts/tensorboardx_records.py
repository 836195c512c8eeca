# Writing records with tensorboardX as in its documentation, but with valid names for runs.
import json
import os

from tensorboardX.record_writer import RecordWriter, directory_check, make_valid_tf_name

runs = {"$ave/&sound": 40, "_first run": 25, "lr=0.1": 100}
for name, steps in runs.items():
    folder = os.path.join("logs", make_valid_tf_name(name).lstrip("."))
    directory_check(folder)
    writer = RecordWriter(os.path.join(folder, "events.out"))
    for step in range(steps):
        writer.write(json.dumps({"run": name, "step": step, "loss": 1 / (step + 1)}).encode())
        if step % 10 == 0:
            writer.flush()
            print(name, step, os.path.getsize(os.path.join(folder, "events.out")))
    writer.close()

# A second run with the same path starts over.
writer = RecordWriter("logs/latest")
writer.write(b"old" * 100)
writer.close()
writer = RecordWriter("logs/latest")
writer.write(b"new")
writer.close()
