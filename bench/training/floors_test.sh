#!/bin/sh
# tools/bench reads the answers of floors: numbers above 0.
floors=$1
answers=$(printf '%s\n' 'conv f32 1 8 8 8 8 3 1 1' 'gemm f32 1 64 64 64 0 0' 'bandwidth 67108864' | "$floors") || exit 1
echo "$answers"
[ "$(echo "$answers" | wc -l)" = 3 ] && ! echo "$answers" | tr ' ' '\n' | grep -qvE '^[0-9.e+-]*[1-9][0-9.e+-]*$'
