# A custom store for tensorboardX's records, as its writer factories allow.
import io

from tensorboardX.record_writer import RecordWriter, directory_check, open_file, register_writer_factory

store = {}


class Stored(io.BytesIO):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def fileno(self):
        raise io.UnsupportedOperation

    def close(self):
        store[self.path] = self.getvalue()
        super().close()


class Factory:
    def open(self, path):
        return Stored(path)

    def directory_check(self, path):
        print("folder", path)


register_writer_factory("kept", Factory())
directory_check("kept://runs")
writer = RecordWriter("kept://runs/events")
for step in range(5):
    writer.write(b"step %d" % step)
writer.close()
file = open_file("kept://runs/notes")
file.write(b"as they are")
file.close()
for path, data in store.items():
    print(path, len(data), data[-12:])
try:
    register_writer_factory("kept://", Factory())
except ValueError:
    print("no colon")
