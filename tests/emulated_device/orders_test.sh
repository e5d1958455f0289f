#!/bin/sh
# Four networks train on the emulated device with the same bits in a hundred orders of the streams' work, and of
# threads: orders_test.sh MSLUA LIBRARY [ORDERS]
here=$PWD
emulated=$here/$2
orders=${3:-100}
. "$here/tests/ranks/common.sh"
recipes=$here/recipes
mkdir cuda
for name in libcuda.so.1 libnvrtc.so.12 libcublasLt.so.12 libcudnn.so.9; do ln -s "$emulated" "cuda/$name"; done
export XDG_CACHE_HOME=$TEST_TMPDIR/cache MSLUA_CUDA_LIBRARIES=$TEST_TMPDIR/cuda
"$mslua" data make mnist mnist --samples 200 > /dev/null 2>&1 || fail "data make mnist"
"$mslua" data make cifar10 cifar --samples 200 > /dev/null 2>&1 || fail "data make cifar10"
"$mslua" data make text text --samples 4000 > /dev/null 2>&1 || fail "data make text"

# train OUT RECIPE ARGS
train() {
  out_folder=$1
  shift
  run "$mslua" train "$@" --log-every 1 --out "$out_folder" --device cuda
  expect "$out_folder" 0 ""
  grep ^epoch "$out_folder/rank_0.log" > "$out_folder.txt" || fail "$out_folder: no losses"
}
# same NAME RECIPE ARGS
same() {
  name=$1
  shift
  train "$name" "$@"
  for seed in $(seq 1 "$orders"); do
    case $((seed % 3)) in 0) order=forward ;; 1) order=backward ;; *) order=random ;; esac
    export EMULATED_DEVICE_SEED="$seed" EMULATED_DEVICE_ORDER="$order"
    train "$name.other" "$@"
    unset EMULATED_DEVICE_SEED EMULATED_DEVICE_ORDER
    cmp -s "$name.txt" "$name.other.txt" || fail "$name: the bits of order $seed differ"
    rm -rf "$name.other"
  done
  echo "$name: $orders orders, $(wc -l < "$name.txt") losses"
}
same quickstart "$recipes/quickstart.lua" --max-steps 10
same lenet "$recipes/lenet_mnist.lua" data_path=mnist batch_size=8 --max-steps 3
same char_gpt "$recipes/char_gpt.lua" --preset smoke data_path=text block=16 batch_size=4 --max-steps 3
same resnet18 "$recipes/resnet18_cifar10.lua" --preset smoke data_path=cifar batch_size=8 width=4 --max-steps 3

finish
