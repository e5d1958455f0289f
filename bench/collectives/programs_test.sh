#!/bin/sh
# What bench/collectives/run starts, and reads the lines of.
ranks=$1 exchange=$2
"$exchange" | grep '"bench": "exchange", "us": [0-9.]' || exit 1
"$ranks" --ranks 2 --seconds 0.001 --op broadcast > lines.txt && cat lines.txt
grep -q '"op": "broadcast", "ranks": 2, .*"us": [0-9.]' lines.txt || exit 1
# A program that begins removes the folders that no process holds, and no others.
"$ranks" --ranks 2 --seconds 0.001 --op broadcast > /dev/null & first=$!
"$ranks" --ranks 2 --seconds 0.001 --op broadcast > /dev/null || exit 1
wait $first || exit 1
"$ranks" --op nosuch 2> refused.txt && exit 1
grep -q "got 'nosuch'" refused.txt
