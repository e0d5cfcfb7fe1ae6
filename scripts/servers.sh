#!/bin/sh
# Installs the servers of object stores that tests run, into a folder: versitygw (S3, built with Go) and Azurite (Azure,
# from npm). What cannot be installed is left out, with a message, and its tests are skipped.
#
#   servers.sh FOLDER
set -u
VERSITYGW=v1.8.0
AZURITE=3.35.0
folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

if [ ! -x "$folder/versitygw-$VERSITYGW/versitygw" ]; then
    if command -v go >/dev/null 2>&1; then
        echo "Building versitygw $VERSITYGW ..."
        build="$folder/build"
        GOPATH="$build" GOCACHE="$build/cache" GOFLAGS=-modcacherw GOBIN="$folder/versitygw-$VERSITYGW" \
            go install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW" ||
            echo "versitygw cannot be built: its tests are skipped."
        rm -rf "$build"
    else
        echo "No Go found: the tests on versitygw are skipped."
    fi
fi
if [ ! -x "$folder/azurite-$AZURITE/node_modules/.bin/azurite-blob" ]; then
    if command -v npm >/dev/null 2>&1; then
        echo "Installing Azurite $AZURITE ..."
        npm install --silent --no-audit --no-fund --prefix "$folder/azurite-$AZURITE" "azurite@$AZURITE" ||
            echo "Azurite cannot be installed: its tests are skipped."
    else
        echo "No npm found: the tests on Azurite are skipped."
    fi
fi
exit 0
