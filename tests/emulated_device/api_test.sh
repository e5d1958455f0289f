#!/bin/sh
# Our declarations of NVIDIA's functions agree with the toolkit's headers, where there is a toolkit.
for include in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/local/cuda-*/include; do
  [ -f "$include/cublasLt.h" ] || continue
  g++ -std=c++17 -fsyntax-only -x c++ -I. -I"$include" tests/emulated_device/api_check.inc || exit 1
  echo "compared with $include"
  exit 0
done
echo "skipped: no CUDA toolkit here"
