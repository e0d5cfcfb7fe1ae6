#!/bin/sh
# Installs packages into an environment, in the versions of a constraints file, and shows what it does.
# uv does it where it is installed, else the pip of the environment; UV= chooses pip, UV=/path/to/uv another uv.
#
#   install.sh VENV CONSTRAINTS ARGUMENT...
set -eu

venv=$1 constraints=$2
shift 2
uv=$(command -v "${UV-uv}" 2>/dev/null) || uv=""
echo "Installing $* into $venv with ${uv:-pip}. The first time takes a few minutes: PySpark alone has 450 MB."
if [ -n "$uv" ]; then
    exec "$uv" pip install --python "$venv/bin/python" --constraint "$constraints" "$@"
fi
exec "$venv/bin/pip" --disable-pip-version-check install --constraint "$constraints" "$@"
