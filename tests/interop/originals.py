"""The published versions of the original libraries, downloaded once to the environment that runs these tests."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from PIL import Image

__all__ = ["datum_source", "make_data", "similarity_wheel"]

DATUM = "1.11.1"  # the last version published with its tests; the tested code is the same in 1.13
SIMILARITY = "0.17.1"

ANNOTATION = """<annotation><size><width>{1}</width><height>{0}</height></size>{objects}</annotation>"""
OBJECT = """<object><name>{name}</name><pose>Left</pose><truncated>0</truncated><difficult>0</difficult>
<bndbox><xmin>{x}</xmin><ymin>1</ymin><xmax>300</xmax><ymax>60</ymax></bndbox></object>"""


def datum_source(folder: Path) -> Path:
    """Unpack datum's source distribution: its package, tests and sample configurations."""
    with tarfile.open(_fetched(f"datum-{DATUM}.tar.gz", "--no-binary=:all:", f"datum=={DATUM}")) as tar:
        tar.extractall(folder, filter="data")
    return folder / f"datum-{DATUM}"


def similarity_wheel(folder: Path) -> Path:
    """Unpack TensorFlow Similarity without installing it, which would require much that its sampler does not use."""
    wheel = f"tensorflow_similarity-{SIMILARITY}-py3-none-any.whl"
    with zipfile.ZipFile(_fetched(wheel, "--only-binary=:all:", f"tensorflow_similarity=={SIMILARITY}")) as archive:
        archive.extractall(folder)
    return folder / "tensorflow_similarity"


def _fetched(name: str, *arguments: str) -> Path:
    store = Path(sys.prefix) / "originals"
    if not (store / name).exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(store), *arguments]
        subprocess.run(command, check=True)
    return store / name


def make_data(folder: Path) -> None:
    """Make images and annotations of the sizes that datum's tests expect, which its distribution does not include."""
    for split in ("train", "val"):
        picture(folder / "clf" / split / "image_232.jpg", 2670, 2870)
        (folder / "clf" / f"{split}.csv").write_text(
            "filename,label_test1,label_test2,label_test3,label_test4\nimage_232,1,2,1,0\n"
        )
    # With two images, the parser's tests expect the size of the one stored first, and the data set's tests that of the
    # other one, because batches come in a different order, in datum as well. The hash of its name decides which is
    # first.
    sizes = {"det": [(500, 486), (281, 500)], "seg": [(366, 500), (281, 500)]}
    names = sorted(["2007_a", "2007_b"], key=lambda name: hashlib.md5(f"train{name}".encode()).digest())
    for kind, both in sizes.items():
        voc = folder / kind / "voc"
        pictures = dict(zip(names, both, strict=True))
        lists = {"train": names, "val": names[:1]}
        for split, listed in lists.items():
            for file in (voc / f"{split}.txt", voc / "ImageSets" / f"{split}.txt"):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(f"{name}\n" for name in listed))
        for number, (name, size) in enumerate(pictures.items()):
            picture(voc / "JPEGImages" / f"{name}.jpg", *size)
            picture(voc / "SegmentationClass" / f"{name}.png", *size)
            objects = "".join(
                OBJECT.format(name=each, x=174 + n) for n, each in enumerate(["cat", "dog"][: number + 1])
            )
            annotation = voc / "Annotations" / f"{name}.xml"
            annotation.parent.mkdir(exist_ok=True)
            annotation.write_text(ANNOTATION.format(*size, objects=objects))
        for file in ("voc2012.names", "classes.names"):
            (voc / file).write_text("cat\ndog\n")


def picture(path: Path, height: int, width: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), (200, 100, 50)).save(path)
