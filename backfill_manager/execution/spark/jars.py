"""The jars that Spark needs beside PySpark's: fetched once, checked, then used from disk without any network.

`python -m backfill_manager.execution.spark.jars` fetches Delta's two, and prints where they are. Those of object stores are in
connectors.py.

`spark.jars.packages` would resolve through Ivy at every start (seconds, hundreds of lines, a network). Here Ivy, which
PySpark carries, runs once and quietly; afterwards Spark gets plain paths. Its default repositories are Ivy's own;
behind a mirror, name a settings file of yours in `BFM_IVY_SETTINGS`. The proxies of `HTTPS_PROXY` and `HTTP_PROXY`, which pip
uses, are used here, too, with their users and passwords.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

from backfill_manager.errors import InvalidInput, WrongJava
from backfill_manager.humanise import duration
from backfill_manager.user_cache import cache_folder


class Jar(NamedTuple):
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> Path:
        return cache_folder() / "jars" / self.file_name


DELTA: Final = (
    Jar("io.delta", "delta-spark_4.2_2.13", "4.4.0", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
    Jar("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)  # fmt: skip
MIN_JAVA: Final = 17
VERSION_TIMEOUT_S: Final = 60.0
FETCH_TIMEOUT_S: Final = 1800.0  # of all jars together; the largest has some 600 MB


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
    try:
        process = subprocess.run(
            [java_path, "-version"], capture_output=True, text=True, check=False, timeout=VERSION_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise WrongJava(f"{java_path} does not report its version within {VERSION_TIMEOUT_S:g} s. {advice}") from None
    number = re.search(r'version "(\d+)(?:\.(\d+))?', process.stderr + process.stdout)
    if number is None:
        raise WrongJava(f"{java_path} does not report its version. {advice}")
    major = int(number[2]) if number[1] == "1" and number[2] else int(number[1])
    if major < MIN_JAVA:
        raise WrongJava(f"{java_path} is Java {major}. {advice}")
    return java_path


def problem_of_spark_home() -> str | None:
    """Why PySpark can't start the JVM of the Spark that `SPARK_HOME` names; None if it can, or starts its own."""
    home, needed = os.environ.get("SPARK_HOME"), version("pyspark")
    if not home:
        return None
    if not (Path(home) / "bin" / "spark-submit").is_file():
        return f"SPARK_HOME={home} is no Spark: it has no bin/spark-submit"
    core = next(iter(sorted((Path(home) / "jars").glob("spark-core_*.jar"))), None)
    found = needed if core is None else core.stem.rpartition("-")[2]
    return None if found == needed else f"SPARK_HOME={home} is Spark {found}, and PySpark is {needed}"


def jar_paths(jars: Sequence[Jar]) -> list[str]:
    """Paths of these jars; those that are not in the cache yet are fetched now."""
    if missing := [jar for jar in jars if not jar.path.exists()]:
        _fetch(missing, cache_folder() / "jars")
    return [str(jar.path) for jar in jars]


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    import pyspark

    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    folder.mkdir(parents=True, exist_ok=True)
    runtime = java()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wanted = Path(scratch) / "ivy.xml"
        wanted.write_text(_ivy_module(jars), encoding="utf-8")
        options = Path(scratch) / "java.options"  # not on the command line, which others see: there may be a password
        options.touch(mode=0o600)
        options.write_text("".join(f"{_quoted(one)}\n" for one in _proxy_options()), encoding="utf-8")
        command = [
            runtime, f"@{options}", "-jar", str(ivy), "-cache", f"{scratch}/ivy", "-ivy", str(wanted), "-types", "jar", "bundle",
            "-retrieve", f"{scratch}/[artifact]-[revision].[ext]",
        ]  # fmt: skip
        if settings := os.environ.get("BFM_IVY_SETTINGS"):
            command += ["-settings", settings]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # Ivy has no limit itself, and waits for a server that says nothing
            names = ", ".join(f"{jar.group}:{jar.artifact}:{jar.version}" for jar in jars)
            raise InvalidInput(
                f"{names} could not be fetched within {duration(FETCH_TIMEOUT_S)}: the repository or a proxy does not answer, or "
                f"the network is too slow. Try again, or put the jars into {folder} yourself."
            ) from None
        for jar in jars:
            fetched = Path(scratch) / jar.file_name
            if not fetched.exists():
                why = _reason(done.stdout + done.stderr, runtime)
                raise InvalidInput(
                    f"The jar {jar.group}:{jar.artifact}:{jar.version} could not be fetched. This first start needs the "
                    f"network (or an Ivy settings file in BFM_IVY_SETTINGS); or put the jar into {folder} yourself.\n{why}"
                )
            if hashlib.sha256(fetched.read_bytes()).hexdigest() != jar.sha256:
                other = f"its SHA-256 is not {jar.sha256}"
                raise InvalidInput(f"{jar.file_name} was fetched, but {other}; it was thrown away.")
            os.replace(fetched, folder / fetched.name)  # atomic: another process sees all of it or nothing


def _reason(output: str, runtime: str) -> str:
    """The line of Ivy's output that says most of why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for telling in (r"refused|Unknown|timed out|Exception", r"not found", r""):
        if found := [line for line in lines if re.search(telling, line)]:
            break
    else:
        return "(no output)"
    if "PKIX" in found[-1]:  # as of a proxy that reads what it hands on
        return f"{found[-1]}\n{runtime} does not trust who signed the certificate: `keytool -importcert -cacerts -file CA.pem`."
    return found[-1]


def _proxy_options() -> Iterator[str]:
    """Java's own words for the proxies of the environment, of which it knows nothing."""
    proxies = getproxies()
    for scheme in ("http", "https"):
        if not (url := proxies.get(scheme)):
            continue
        try:
            at = urlsplit(url if "://" in url else f"http://{url}")
            host, port = at.hostname, at.port or 80
        except ValueError:
            host, port = None, 0
        if not host:
            name, example = f"{scheme.upper()}_PROXY", "http://proxy.example.org:3128"
            raise InvalidInput(f"{name} is no address of a proxy, such as {example}.")
        yield from (f"-D{scheme}.proxyHost={host}", f"-D{scheme}.proxyPort={port}")
        if at.username:  # Ivy reads it under these names, for both
            yield f"-Dhttp.proxyUser={unquote(at.username)}"
            yield f"-Dhttp.proxyPassword={unquote(at.password or '')}"
            yield "-Djdk.http.auth.tunneling.disabledSchemes="  # Java gives a proxy no password otherwise
    direct = [host.strip().lstrip(".") for host in proxies.get("no", "").split(",") if host.strip()]
    if direct:  # of a name, hosts below it as well, as pip has it
        patterns = [one for host in direct for one in (host, f"*.{host}")]
        yield f"-Dhttp.nonProxyHosts={'|'.join(['localhost', '127.*', '[::1]', *patterns])}"


def _quoted(option: str) -> str:
    """As a line of a file of options for `java`."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _ivy_module(jars: Sequence[Jar]) -> str:
    """What Ivy is to get: these jars, without what they name themselves."""
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false" conf="default->master"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="backfill_manager" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


if __name__ == "__main__":
    print(*jar_paths(DELTA), sep="\n")
