# Sourced by spark-submit.sh and tests/run: Python, Java, `.venv`. Works in the bash 3.2 of macOS.
#
# What is installed is known by a stamp per extra in `.venv`: it holds a checksum of the pins and of this folder's path, so
# that a second start runs no pip and asks no network, and a changed pin or a moved folder installs again.

give_up() { # exit 2: the machine, or what was asked, is not as it must be
    printf '%s\n' "$@" >&2
    exit 2
}

python_is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

find_python() { # prints a Python >= 3.10: $PYTHON, else python3, else one that carries its version in its name
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.10; do
        if python_is_new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
        [ -n "${PYTHON:-}" ] && break # a Python that was named is not replaced by another in silence
    done
    local found
    found=$("${PYTHON:-python3}" --version 2>/dev/null) || found=none
    give_up "Python 3.10 or newer is needed; found: $found${PYTHON:+ (PYTHON=$PYTHON)}. Install it:" \
        "  Debian, Ubuntu:  sudo apt install python3 python3-venv" \
        "  Fedora:          sudo dnf install python3" \
        "  macOS:           brew install python" \
        "or name one: PYTHON=/path/to/python3 $0"
}

java_version() { # prints the major version of a java, nothing when it does not run; Java 8 calls itself 1.8
    "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1 || true
}

require_java() { # Java >= 17, the one that Spark will take; on macOS Homebrew's is found where nobody links it
    local java=java version home
    [ -n "${JAVA_HOME:-}" ] && java="$JAVA_HOME/bin/java"
    version=$(java_version "$java")
    if [ -z "$version" ] && [ -z "${JAVA_HOME:-}" ]; then
        for home in /opt/homebrew/opt/openjdk@17 /opt/homebrew/opt/openjdk@21 /usr/local/opt/openjdk@17 /usr/local/opt/openjdk@21; do
            if [ -x "$home/bin/java" ]; then
                export JAVA_HOME="$home"
                version=$(java_version "$home/bin/java")
                break
            fi
        done
    fi
    if [ -z "$version" ] || [ "$version" -lt 17 ]; then
        give_up "Java 17 or newer is needed; found: ${version:+Java }${version:-none}${JAVA_HOME:+ (JAVA_HOME=$JAVA_HOME)}. Install it:" \
            "  Debian, Ubuntu:  sudo apt install openjdk-17-jre-headless" \
            "  Fedora:          sudo dnf install java-21-openjdk-headless" \
            "  macOS:           brew install openjdk@17" \
            "or name one: JAVA_HOME=/path/to/jdk $0"
    fi
}

stamp_text() {
    printf '%s %s\n' "$(cat setup.cfg pyproject.toml conf/constraints.txt | cksum)" "$PWD"
}

is_installed() { # the extra's stamp is of today's pins, and the Python beneath is still there
    [ "$(cat ".venv/.installed-$1" 2>/dev/null)" = "$(stamp_text)" ] && .venv/bin/python -c '' 2>/dev/null
}

install_extra() { # demo | test; test holds demo
    is_installed "$1" && return 0
    local python log stamp started=$SECONDS
    stamp=$(stamp_text) # of the pins that are installed, should they change meanwhile
    python=$(find_python) || exit 2
    log=$(mktemp "${TMPDIR:-/tmp}/bfm-install.XXXXXX")
    printf 'Installing into %s/.venv (once, about a minute; PySpark alone is 450 MB) ... ' "$PWD" >&2
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1 && ! "$python" -m venv --clear .venv >"$log" 2>&1; then
        printf 'failed.\n' >&2
        give_up "$(tail -n 3 "$log")" "Python can't make a .venv here. On Debian and Ubuntu: sudo apt install python3-venv"
    fi
    # Compiling what is never imported would cost more than it saves.
    if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile \
        -c conf/constraints.txt -e ".[$1]" >"$log" 2>&1; then
        printf 'failed.\n' >&2
        give_up "$(tail -n 5 "$log")" "pip could not install; all it said is in $log. This first start needs the network (or a mirror in pip.conf)."
    fi
    rm -f "$log"
    echo "$stamp" >".venv/.installed-$1"
    [ "$1" = test ] && echo "$stamp" >.venv/.installed-demo
    printf 'done in %s s.\n' "$((SECONDS - started))" >&2
}
