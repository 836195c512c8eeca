"""``make dist``: build and check every distribution, install it in a fresh environment, and try it there.

The source distributions and wheels go to ``dist/``. The core's C code uses Python's stable ABI, so its single wheel is
tried on several Pythons: those given by ``--pythons``, or by default every working python3.11 to python3.14 on the PATH
or from pyenv. The environments are in a temporary folder, and do not have the checkout on their path.
"""

from __future__ import annotations

import argparse
import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
MINORS = ("3.11", "3.12", "3.13", "3.14")


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def pythons() -> list[Path]:
    """Return one Python for each minor version, from the PATH or else from pyenv."""
    found = []
    for minor in MINORS:
        on_path = shutil.which(f"python{minor}")
        pyenv = sorted(Path.home().glob(f".pyenv/versions/{minor}.*/bin/python{minor}"))
        for candidate in ([Path(on_path)] if on_path else []) + pyenv[-1:]:
            if not subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode:
                found.append(candidate)
                break
    return found


def build(out: Path, work: Path) -> None:
    """Build from a clean export of what is committed to git, so that nothing else is included.

    Builds are not isolated, because the build tools are pinned in this environment, like all else in it.
    """
    tree = work / "tree"
    tree.mkdir()
    archive = work / "tree.tar"
    run("git", "-C", ROOT, "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as tar:
        tar.extractall(tree, filter="data")
    for project in (ROOT, *PLUGINS):
        run(
            sys.executable,
            "-m",
            "build",
            "--quiet",
            "--no-isolation",
            "--outdir",
            out,
            tree / project.relative_to(ROOT),
        )


def check(out: Path) -> None:
    """Check the metadata of each distribution, what a wheel must contain, and what a source distribution must not."""
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(out.iterdir()))
    for wheel in sorted(out.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            [metadata] = [email.message_from_bytes(archive.read(n)) for n in names if n.endswith(".dist-info/METADATA")]
        links = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
        wrong = [
            *(f"no URL named {name}" for name in ("Source", "Documentation", "Changes", "Issues") if name not in links),
            *([] if any("licenses/LICENSE" in name for name in names) else ["no license file"]),
            *([] if any(name.endswith("py.typed") for name in names) else ["no py.typed"]),
            *(f"a link that only the checkout has: {link}" for link in relative_links(str(metadata.get_payload()))),
            *(f"does not belong in it: {name}" for name in names if name.startswith("tests/")),
        ]
        if wrong:
            raise SystemExit(f"{wheel.name}: " + "; ".join(wrong))
    for sdist in sorted(out.glob("*.tar.gz")):
        with tarfile.open(sdist) as tar:
            stray = [name for name in tar.getnames() if name.endswith((".so", ".pyc")) or "/.venv" in name]
        if stray:
            raise SystemExit(f"{sdist.name}: {stray[:5]}")


def relative_links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"https?:|#|mailto:", link)]


def tried(python: Path, out: Path, work: Path, *, compiler: bool) -> dict[str, object]:
    """Try all extras from the wheels, or, without a compiler, only the core from its source distribution without C."""
    environment = work / f"try-{python.name}{'' if compiler else '-no-compiler'}"
    run(python, "-m", "venv", environment)
    pip = (environment / "bin/python", "-m", "pip", "install", "--quiet", "--pre", "--find-links", out)
    if compiler:
        run(*pip, "asyncrec[all,demo]", "trio")
    else:
        nothing = {**os.environ, "CC": "/bin/false", "CXX": "/bin/false"}
        run(*pip, "--no-cache-dir", "--no-binary", "asyncrec", "asyncrec[cli]", env=nothing)  # a cached wheel has C
    said = run(
        environment / "bin/python",
        "-I",
        Path(__file__).with_name("smoke.py"),
        *(["--trio"] if compiler else []),
        cwd=work,
    )
    result = json.loads(said.splitlines()[-1])
    if not str(result["from"]).startswith(str(environment)):
        raise SystemExit(f"{python} tried {result['from']}, not what was installed")
    if result["native"] is not compiler:
        raise SystemExit(f"{python}: frames in C: {result['native']}, with a compiler: {compiler}")
    return dict(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where they go (dist/); emptied first")
    parser.add_argument("--pythons", nargs="*", type=Path, help="interpreters, instead of those that are found")
    parser.add_argument("--demo", action="store_true", help="run the demo with the first one's wheels, too")
    arguments = parser.parse_args()
    interpreters = arguments.pythons or pythons()
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        build(arguments.out, work)
        check(arguments.out)
        for built in sorted(arguments.out.iterdir()):
            print(f"{built.stat().st_size >> 10:7,} KiB  {built.name}")
        for python in interpreters:
            for compiler in (True, False):
                result = tried(python, arguments.out, work, compiler=compiler)
                how = "wheels, all extras" if compiler else "source, no compiler"
                print(f"Python {result['python']:7} {how:20} frames in C: {'yes' if result['native'] else 'no'}")
        if arguments.demo:
            run(work / f"try-{interpreters[0].name}/bin/python", ROOT / "examples/crawl_site.py", cwd=work)
            print("the demo ran with the wheels")


if __name__ == "__main__":
    main()
