#!/bin/sh
# Runs one comparison through the binary: parity.sh MSLUA parity.lua NETWORK.json f64|f32 RECIPES
mslua=$1
shift
exec "$mslua" run "$@"
