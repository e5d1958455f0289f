#!/bin/sh
# A short run of tools/fuzz/shapes: the same cases every time.
set -eu
OMP_WAIT_POLICY=passive exec "$1" --cases 400 --seed 20
