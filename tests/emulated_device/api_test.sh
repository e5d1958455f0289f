#!/bin/sh
# api_test.sh [OUTPUT]: our declarations of NVIDIA's functions agree with the toolkit's headers, where there is a
# toolkit. With MSLUA_REQUIRE_CUDA=1, as --config=cuda sets it, no toolkit is a failure. OUTPUT: an empty source, made
# once they agree.
for include in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/local/cuda-*/include; do
  [ -f "$include/cublasLt.h" ] || continue
  g++ -std=c++17 -fsyntax-only -x c++ -I. -I"$include" tests/emulated_device/api_check.inc || exit 1
  [ -n "$1" ] && echo "// Compared with $include." > "$1"
  echo "compared with $include"
  exit 0
done
[ "$MSLUA_REQUIRE_CUDA" = 1 ] || { echo "skipped: no CUDA toolkit here"; exit 0; }
echo "no CUDA toolkit here (cublasLt.h in \$CUDA_HOME/include or /usr/local/cuda*/include):" \
  "install it, or build without --config=cuda" >&2
exit 1
