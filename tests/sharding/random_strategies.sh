#!/bin/sh
# Networks with random strategies train as on one rank: random_strategies.sh PROGRAM SCRIPT
set -u
"$1" --script "$2" --seed 27 --cases 24
