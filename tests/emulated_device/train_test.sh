#!/bin/sh
# The unmodified program trains on the emulated device: its losses are the CPU's, it resumes, moves between CPU and
# device, and says what it cannot do.
here=$PWD
emulated=$here/$2
. "$here/tests/ranks/common.sh"
recipes=$here/recipes
mkdir cuda plain
for name in libcuda.so.1 libnvrtc.so.12; do ln -s "$emulated" "cuda/$name" && ln -s "$emulated" "plain/$name"; done
for name in libcublasLt.so.12 libcudnn.so.9; do ln -s "$emulated" "cuda/$name"; done
export XDG_CACHE_HOME=$TEST_TMPDIR/cache
cuda() { MSLUA_CUDA_LIBRARIES=$TEST_TMPDIR/cuda "$@"; }
# Without cuBLASLt and cuDNN.
plain() { EMULATED_DEVICE_OPTIMIZE=1 MSLUA_CUDA_LIBRARIES=$TEST_TMPDIR/plain "$@"; }

# near NAME TOLERANCE FILE FILE: the numbers of the loss lines of two logs.
near() {
  python3 - "$@" << 'PY' || fail "$1: losses differ"
import re, sys
name, tolerance, one, two = sys.argv[1:]
def losses(path):
    with open(path) as f:
        return [(m[1], float(m[2])) for line in f if (m := re.match(r"(epoch: \d+ step: \d+), loss is (\S+)", line))]
a, b = losses(one), losses(two)
if not a or [k for k, _ in a] != [k for k, _ in b]:
    sys.exit(f"{name}: {len(a)} and {len(b)} lines")
for (step, x), (_, y) in zip(a, b):
    if abs(x - y) > float(tolerance) * max(abs(x), 1e-3):
        sys.exit(f"{name}: {step}: {x} and {y}")
PY
}

"$mslua" data make mnist mnist --samples 200 > /dev/null 2>&1 || fail "data make mnist"
"$mslua" data make cifar10 cifar --samples 200 > /dev/null 2>&1 || fail "data make cifar10"
"$mslua" data make text text --samples 4000 > /dev/null 2>&1 || fail "data make text"

# alike NAME TOLERANCE STEPS RECIPE ARGS: so many steps on the CPU and on the device.
alike() {
  name=$1 tolerance=$2 steps=$3
  shift 3
  run "$mslua" train "$@" --max-steps "$steps" --log-every 1 --out "$name.cpu"
  expect "$name on the CPU" 0 ""
  run cuda "$mslua" train "$@" --max-steps "$steps" --log-every 1 --out "$name.cuda" --device cuda
  expect "$name on the device" 0 ""
  near "$name" "$tolerance" "$name.cpu/rank_0.log" "$name.cuda/rank_0.log"
}
# golden NAME RECIPE ARGS: in f32 and in bf16. Another order of the streams' work and of threads gives the same bits.
golden() {
  name=$1
  shift
  alike "$name" 1e-5 10 "$@"
  EMULATED_DEVICE_SEED=7 EMULATED_DEVICE_ORDER=random run cuda "$mslua" train "$@" --max-steps 10 --log-every 1 \
    --out "$name.again" --device cuda
  grep ^epoch "$name.cuda/rank_0.log" > one.txt
  grep ^epoch "$name.again/rank_0.log" > two.txt
  [ -s one.txt ] && cmp -s one.txt two.txt || fail "$name: the bits of two runs differ"
  alike "${name}_bf16" 1e-2 10 "$@" train.amp=bf16
}
golden quickstart "$recipes/quickstart.lua"
golden lenet "$recipes/lenet_mnist.lua" data_path=mnist batch_size=4
golden char_gpt "$recipes/char_gpt.lua" --preset smoke data_path=text block=16 batch_size=2
alike lenet_f16 1e-2 10 "$recipes/lenet_mnist.lua" data_path=mnist batch_size=4 train.amp=f16
alike char_gpt_f16 1e-2 10 "$recipes/char_gpt.lua" --preset smoke data_path=text block=16 batch_size=2 train.amp=f16
# At its own rate of learning the losses of so small a batch differ between two CPUs too.
golden resnet18 "$recipes/resnet18_cifar10.lua" --preset smoke data_path=cifar batch_size=4 width=4 lr=0.01
alike batch_norm 1e-4 10 "$here/tests/recovery/lenet.lua" samples=320
# Batches of four images make its losses differ between two CPUs too, from the second step on.
alike resnet50 1e-4 1 "$recipes/resnet50_cifar10.lua" --preset smoke data_path=cifar batch_size=4 width=4

# Without the libraries of products, convolutions and attention, their text.
without() {
  name=$1 tolerance=$2 steps=$3
  shift 3
  run plain "$mslua" train "$@" --max-steps "$steps" --log-every 1 --out "$name.plain" --device cuda
  expect "$name without libraries" 0 ""
  near "$name without libraries" "$tolerance" "$name.cpu/rank_0.log" "$name.plain/rank_0.log"
}
without lenet 1e-5 10 "$recipes/lenet_mnist.lua" data_path=mnist batch_size=4
without char_gpt_bf16 1e-2 10 "$recipes/char_gpt.lua" --preset smoke data_path=text block=16 batch_size=2 train.amp=bf16

# float32 is rounded to TF32 where the recipe allows it: in products and convolutions each by itself.
tf32() {
  name=$1
  shift
  run cuda "$mslua" train "$recipes/lenet_mnist.lua" data_path=mnist batch_size=4 --max-steps 10 --log-every 1 \
    --out "$name" --device cuda "$@"
  expect "$name" 0 ""
  near "$name" 1e-2 lenet.cuda/rank_0.log "$name/rank_0.log"
  grep ^epoch "$name/rank_0.log" > "$name.txt"
}
tf32 tf32_neither context.gpu_config.matmul_allow_tf32=false
tf32 tf32_products context.gpu_config.matmul_allow_tf32=true
tf32 tf32_convolutions context.gpu_config.conv_allow_tf32=true
grep ^epoch lenet.cuda/rank_0.log | cmp -s - tf32_neither.txt || fail "TF32 that is not allowed changes the bits"
for one in neither products convolutions; do
  for two in neither products convolutions; do
    [ "$one" = "$two" ] || ! cmp -s "tf32_$one.txt" "tf32_$two.txt" || fail "TF32: $one and $two have equal bits"
  done
done

# Which of them a node runs in.
names() {
  run cuda "$mslua" prof "$@" --device cuda --steps 1
  for name in cudnn cublas; do expect "mslua prof $1" 0 "$name"; done
}
names "$recipes/lenet_mnist.lua" data_path=mnist batch_size=4
names "$recipes/char_gpt.lua" --preset smoke data_path=text block=16 batch_size=2 train.amp=bf16
run plain "$mslua" doctor
expect "doctor without cuDNN" 0 "libcudnn.so.9 was not found"

# Ranks share a device or have one each; their collectives go through host memory.
run cuda "$mslua" train "$recipes/quickstart.lua" -n 2 --max-steps 10 --log-every 1 --out two.cuda --device cuda
expect "two ranks" 0 ""
run "$mslua" train "$recipes/quickstart.lua" -n 2 --max-steps 10 --log-every 1 --out two.cpu
near "two ranks" 1e-5 two.cpu/rank_0.log two.cuda/rank_0.log
EMULATED_DEVICE_COUNT=1 run cuda "$mslua" train "$recipes/quickstart.lua" -n 2 --max-steps 3 --device cuda
expect "more ranks than devices" 4 "MSLUA_SHARE_DEVICE=1"
EMULATED_DEVICE_COUNT=1 MSLUA_SHARE_DEVICE=1 run cuda "$mslua" train "$recipes/quickstart.lua" -n 2 --max-steps 3 \
  --device cuda
expect "a shared device" 0 ""

# A checkpoint of the device resumes there as if nothing had stopped it, and on the CPU; one of the CPU on the device.
train() {
  out=$1
  shift
  run cuda "$mslua" train "$here/tests/recovery/lenet.lua" samples=160 epochs=2 --log-every 1 --out "$out" "$@"
  expect "$out" 0 ""
}
train whole --device cuda
train half.cuda --device cuda epochs=1
cp -r half.cuda half.again && cp -r half.cuda half.cpu
train half.again --device cuda --resume=last
grep "^epoch: 2" whole/rank_0.log > one.txt
grep "^epoch: 2" half.again/rank_0.log > two.txt
[ -s one.txt ] && cmp -s one.txt two.txt || fail "resumed on the device: the bits differ"
train half.cpu --resume=last
near "resumed on the CPU" 1e-4 whole/rank_0.log half.cpu/rank_0.log
train from.cpu epochs=1
train from.cpu --device cuda --resume=last
near "resumed on the device" 1e-4 whole/rank_0.log from.cpu/rank_0.log

# The algorithms of cuBLASLt and cuDNN are decisions of the plan: a resumed training has those of its checkpoint, though
# the libraries would choose others now. Of another version, which may not know them, a note says so.
chosen() { EMULATED_CUBLAS_ALGORITHM=1 EMULATED_CUDNN_FIRST=4 train "$@" --device cuda; }
chosen chosen.whole
chosen chosen.half epochs=1
for copy in watched other rounded; do cp -r chosen.half "chosen.$copy"; done
grep "^epoch: 2" chosen.whole/rank_0.log > one.txt
cmp -s one.txt two.txt && fail "the emulated libraries' algorithms have equal bits"
train chosen.half --device cuda --resume=last
refuse "resumed with the plan's algorithms" "not the same bits"
grep "^epoch: 2" chosen.half/rank_0.log > two.txt
[ -s one.txt ] && cmp -s one.txt two.txt || fail "resumed with the plan's algorithms: the bits differ"
# The graph that a client watches is the training's, with its algorithms.
train chosen.watched --device cuda --resume=last nap=2 nap_until="$PWD/watched" > /dev/null &
training=$!
tries=0
watch() { "$mslua" attach chosen.watched -e ".watch Net/conv2 every 1 limit 2" > watched.txt 2>&1; }
until watch && grep -q ^watching watched.txt; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || break
  sleep 0.1
done
touch watched
wait "$training"
grep -q ^watching watched.txt || fail "watched: $(cat watched.txt)"
grep "^epoch: 2" chosen.watched/rank_0.log > two.txt
cmp -s one.txt two.txt || fail "watched: the bits differ"
EMULATED_CUDNN_VERSION=92000 train chosen.other --device cuda --resume=last
expect "resumed with another cuDNN" 0 ", cuBLASLt 12.8.0, cuDNN 9.19.0; here it is for "
grep "^epoch: 2" chosen.other/rank_0.log > two.txt
cmp -s one.txt two.txt && fail "resumed with another cuDNN: the choices of the one before were taken"
expect "resumed with another cuDNN" 0 "cuDNN 9.20.0: the same mathematics, not the same bits"
cp -r chosen.rounded chosen.gone
train chosen.rounded --device cuda --resume=last context.gpu_config.matmul_allow_tf32=true
expect "resumed with TF32" 0 "TF32 in products: the same mathematics, not the same bits"
EMULATED_CUDNN_ENGINE=3 train chosen.gone --device cuda --resume=last
expect "resumed without an engine" 0 "algorithms of the checkpoint's plan are not in the libraries here"
near "resumed with another cuDNN" 1e-4 whole/rank_0.log chosen.other/rank_0.log

# Steps that begin before the loss of the one before is read print the lines of steps that are waited for, and save the
# same bytes.
train single --device cuda context.device_check=true
cmp -s whole/rank_0.log single/rank_0.log || fail "steps that begin ahead: the logs differ"
alike_checkpoints() {
  for saved in "$1"/ckpt/*.ckpt; do
    cmp -s "$saved/rank_0.safetensors" "$2/ckpt/${saved##*/}/rank_0.safetensors" || fail "$3: ${saved##*/} differs"
  done
  [ -e "$saved" ] || fail "$3: there are no checkpoints"
}
alike_checkpoints whole single "steps that begin ahead"

# A checkpoint that is written while training continues has the bytes of its step. Where the device has too little
# memory for the copy, training says so and waits.
train waits --device cuda every=7
train beside --device cuda every=7 checkpoint.async_save=true
alike_checkpoints waits beside "saved beside the training"
EMULATED_DEVICE_MEMORY=1720000 train crowded --device cuda every=7 checkpoint.async_save=true
expect "too little memory for a copy" 0 "training stops while checkpoints are copied"
alike_checkpoints waits crowded "saved without a copy"

# Without the libraries: one line, and the exit code.
mkdir nothing
MSLUA_CUDA_LIBRARIES=$TEST_TMPDIR/nothing run "$mslua" train "$recipes/quickstart.lua" --device cuda
expect "no driver" 4 "--device cuda: libcuda.so.1 was not found in the folders of MSLUA_CUDA_LIBRARIES"
EMULATED_DEVICE_COUNT=0 run cuda "$mslua" train "$recipes/quickstart.lua" --device cuda
expect "no device" 4 "finds no NVIDIA device"
EMULATED_DEVICE_MEMORY=100 run cuda "$mslua" train "$recipes/quickstart.lua" --device cuda
expect "no memory" 4 "CUDA_ERROR_OUT_OF_MEMORY"
run cuda "$mslua" doctor
expect "doctor" 0 "emulated device"
expect "doctor" 0 "cuDNN 9.19.0"
expect "doctor" 0 "cuBLASLt 12.8"
echo 'local ms = require "mslua" ms.set_context { device_target = "GPU" }' > target.lua
MSLUA_CUDA_LIBRARIES=$TEST_TMPDIR/nothing run "$mslua" run target.lua
expect "device_target" 2 'set device_target = "CPU"'

exit $failed
