"""Makes a virtual environment for the requirements of a bundle, with uv where it is on PATH, else with venv and pip.

It sees, after its own packages, those that the manager is imported from: a `.pth` file names their folders. So PySpark,
Delta and this package are the manager's own, byte for byte, and what the requirements ask for is installed before
them. Constraints keep the installer from replacing what both ends of Spark must have.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import site
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from backfill_manager.errors import InvalidInput, shorten
from backfill_manager.masking import mask_text
from backfill_manager.processes.interpreter import check_interpreter, environment_for

_PTH: Final = "of_the_manager.pth"
_OURS: Final = "backfill-manager"
_PINNED: Final = ("pyspark", "py4j", "delta-spark", "pandas", "pyarrow", _OURS)  # by the names of their packages
_NEEDED: Final = ("backfill_manager", "pyspark", "py4j", "delta")  # modules, wherever they are imported from
_TIMEOUT_S: Final = 600.0  # for the packages; the bundle counts as stuck soon after
_BLAME: Final = re.compile(r"(?:ERROR|error): +(\S.*)")
_ENDS_WITH_US: Final = (  # Linux ends it when the manager is killed, so that it does not go on beside the next one's
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class Requirements:
    """`text` is what is installed: that of the file `name` of the folder `root`, with the texts of files that it includes;
    without a `name` it is in the settings."""

    text: str
    root: Path | None = None
    name: str = "its settings"
    included: tuple[str, ...] = ()


def make(place: Path, requirements: Requirements) -> None:
    """In its place, as the scripts of packages hold its path: half of one, left by a process that was killed, is removed first.
    `InvalidInput` has the line that tells what is wrong; nothing is left then."""
    if place.exists():
        shutil.rmtree(place)
    failed = f"the packages of {requirements.name} can't be installed"
    uv, python = shutil.which("uv"), python_of(place)
    try:
        if uv:
            _run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], failed)
        else:  # with the manager's pip, which it sees, if there is one
            has_pip = importlib.util.find_spec("pip") is not None
            _run([sys.executable, "-m", "venv", *(["--without-pip"] if has_pip else []), str(place)], failed)
        _pth(place).write_text("".join(f"{path}\n" for path in _managers_path()))
        _write(place / "constraints.txt", constraints())
        _write(place / "requirements.txt", requirements.text.splitlines())
        if uv:
            installer = [uv, "pip", "install", "--python", python, "--no-progress", "--color", "never"]
        else:
            installer = [python, "-m", "pip", "--no-input", "--no-color", "--disable-pip-version-check"]
            installer += ["install", "--progress-bar", "off"]
        source = requirements.root / requirements.name if requirements.root else place / "requirements.txt"
        names = {str(source): requirements.name, f"{requirements.root}/": ""}
        installer += ["-r", str(source), "-c", str(place / "constraints.txt")]
        _run(installer, failed, folder=requirements.root, names=names)
        check_interpreter(python)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def python_of(place: Path) -> str:
    return str(place / "bin" / "python")


def has_moved(place: Path) -> bool:
    """The manager's packages are not where they were when it was made."""
    try:
        paths = _pth(place).read_text().splitlines()
    except OSError:
        return True
    return not all(map(os.path.exists, paths))


def constraints() -> list[str]:
    """What the packages of a bundle may not change: PySpark and what goes with it as it is here, and what this package needs."""
    pinned = []
    for name in _PINNED:
        with suppress(metadata.PackageNotFoundError):
            pinned.append(f"{name}=={metadata.version(name)}")
    try:
        needed = metadata.requires(_OURS) or []
    except metadata.PackageNotFoundError:  # imported from a folder or an archive
        needed = []
    return pinned + [line for line in needed if "extra ==" not in line]


def folder_of(module: str) -> str:
    """The folder or archive that a package is imported from; "" when there is none."""
    spec = importlib.util.find_spec(module)
    return os.path.dirname(next(iter(spec.submodule_search_locations or ()), "")) if spec else ""


def _managers_path() -> list[str]:
    """Where the manager's packages are imported from: not the standard library, and nothing that this process or Spark has
    added for itself (a script's folder, a folder of temporary files)."""
    sites = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return [path for path in dict.fromkeys([*map(folder_of, _NEEDED), *sites]) if os.path.exists(path)]


def _pth(place: Path) -> Path:
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return place / "lib" / minor / "site-packages" / _PTH


def _write(path: Path, lines: Sequence[str]) -> None:
    path.touch(mode=0o600)  # an address of an index may have a password
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def _run(
    command: Sequence[str], failed: str, *, folder: Path | None = None, names: Mapping[str, str] | None = None
) -> None:
    """`InvalidInput` begins with `failed`. `names`: of paths in what it says, for people."""
    process = subprocess.Popen(
        [sys.executable, "-c", _ENDS_WITH_US, *command], cwd=folder, env=environment_for(sys.executable),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            output, _ = process.communicate(timeout=_TIMEOUT_S)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise InvalidInput(f"{failed} within {_TIMEOUT_S / 60:g} minutes") from None
            raise
    if process.returncode:
        for path, name in (names or {}).items():
            output = output.replace(path, name)
        why = _telling(output) or f"{Path(command[0]).name} ended with exit code {process.returncode}"
        raise InvalidInput(f"{failed}: {shorten(mask_text(why), 500)}")


def _telling(output: str) -> str:
    """The line that an installer says what is wrong in, with what it says of the cause."""
    lines = output.splitlines()
    first = next((n for n, line in enumerate(lines) if _BLAME.match(line)), None)
    if first is None:
        return lines[-1].strip() if lines else ""
    causes: list[str] = []
    is_list = False  # pip's, of who wants what
    for line in lines[first + 1 :]:
        if line.startswith("The conflict is caused by"):
            is_list = True
        elif line.strip().startswith("cause: "):  # uv's
            causes.append(line.strip().removeprefix("cause: "))
        elif (causes or is_list) and line.startswith("    ") and line.strip():
            causes.append(line.strip())
        elif causes:
            break
    blame = lines[first].partition(": ")[2].strip()
    return f"{blame.rstrip('.')}: {('; ' if is_list else ' ').join(causes)}" if causes else blame
