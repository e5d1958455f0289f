#!/bin/sh
# Runs one script of this folder through the binary: run.sh MSLUA SCRIPT [argument ...]
exec "$1" run "$2" "$3" "$4"
