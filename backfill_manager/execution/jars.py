"""The two jars that Delta needs beside PySpark: fetched once, checked, then used from disk without any network.

`python -m backfill_manager.execution.jars` fetches them, and prints where they are.

`spark.jars.packages` would resolve through Ivy at every start (seconds, hundreds of lines, a network). Here Ivy, which
PySpark carries, runs once and quietly; afterwards Spark gets plain paths. Its default repositories are Ivy's own;
behind a mirror, name a settings file of yours in `BFM_IVY_SETTINGS`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from backfill_manager.errors import InvalidInput, WrongJava
from backfill_manager.user_cache import cache_folder

GROUP: Final = "io.delta"
# artifact, version, SHA-256
JARS: Final = (
    ("delta-spark_4.2_2.13", "4.4.0", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
    ("delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)
MIN_JAVA: Final = 17


def java() -> str:
    """The `java` that Spark will use (`$JAVA_HOME` first); `WrongJava` when there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    java_path = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    advice = (
        f"Spark needs Java {MIN_JAVA} or newer. Install it: `apt install openjdk-17-jre-headless` (Debian, Ubuntu), "
        "`dnf install java-17-openjdk-headless` (Fedora), `brew install openjdk@17` (macOS); or set JAVA_HOME."
    )
    if java_path is None:
        raise WrongJava(f"Java was not found{f' in JAVA_HOME={home}' if home else ''}. {advice}")
    process = subprocess.run([java_path, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)(?:\.(\d+))?', process.stderr + process.stdout)
    if version is None:
        raise WrongJava(f"{java_path} does not report its version. {advice}")
    major = int(version[2]) if version[1] == "1" and version[2] else int(version[1])
    if major < MIN_JAVA:
        raise WrongJava(f"{java_path} is Java {major}. {advice}")
    return java_path


def delta_jars() -> list[str]:
    """Paths of the jars, fetched now if they are not in the cache yet."""
    folder = cache_folder() / "jars"
    paths = [folder / f"{artifact}-{version}.jar" for artifact, version, _ in JARS]
    if not all(path.exists() for path in paths):
        _fetch(folder)
    return [str(path) for path in paths]


def _fetch(folder: Path) -> None:
    import pyspark

    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    folder.mkdir(parents=True, exist_ok=True)
    runtime = java()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for artifact, version, digest in JARS:
            command = [
                runtime, "-jar", str(ivy), "-cache", f"{scratch}/ivy", "-dependency", GROUP, artifact, version,
                "-confs", "master,default", "-notransitive", "-types", "jar",
                "-retrieve", f"{scratch}/[artifact]-[revision].[ext]",
            ]  # fmt: skip
            if settings := os.environ.get("BFM_IVY_SETTINGS"):
                command += ["-settings", settings]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            fetched = Path(scratch) / f"{artifact}-{version}.jar"
            if done.returncode or not fetched.exists():
                lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
                telling = re.compile("UNRESOLVED|refused|Unknown|timed out|Exception")
                last = ([line for line in lines if telling.search(line)] or lines or ["(no output)"])[-1]
                raise InvalidInput(
                    f"Delta's jar {GROUP}:{artifact}:{version} could not be fetched. This first start needs the network "
                    f"(or an Ivy settings file in BFM_IVY_SETTINGS); or put the jar into {folder} yourself.\n{last}"
                )
            if hashlib.sha256(fetched.read_bytes()).hexdigest() != digest:
                raise InvalidInput(
                    f"{artifact}-{version}.jar was fetched, but its SHA-256 is not {digest}; it was thrown away."
                )
            os.replace(fetched, folder / fetched.name)  # atomic: another process sees all of it or nothing


if __name__ == "__main__":
    print(*delta_jars(), sep="\n")
