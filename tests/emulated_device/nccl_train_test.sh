#!/bin/sh
# The unmodified program trains on several emulated devices over the emulated NCCL: its losses are those of collectives
# that are staged through host memory; it says what it cannot do, and ends within seconds when NCCL or a rank fails.
here=$PWD
emulated=$here/$2
. "$here/tests/ranks/common.sh"
recipes=$here/recipes
mkdir cuda without
EMULATED_NCCL_FOLDER=$(mktemp -d /tmp/mslua-nccl-XXXXXX) || exit 1
export EMULATED_NCCL_FOLDER
trap 'rm -rf "$TMPDIR" "$EMULATED_NCCL_FOLDER"' EXIT
for name in libcuda.so.1 libnvrtc.so.12 libcublasLt.so.12 libcudnn.so.9; do
  ln -s "$emulated" "cuda/$name" && ln -s "$emulated" "without/$name"
done
ln -s "$emulated" cuda/libnccl.so.2
export XDG_CACHE_HOME=$TEST_TMPDIR/cache
cuda() { MSLUA_CUDA_LIBRARIES=$TEST_TMPDIR/cuda "$@"; }
without() { MSLUA_CUDA_LIBRARIES=$TEST_TMPDIR/without "$@"; }
staged="collectives of devices go through host memory"

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
"$mslua" data make text text --samples 4000 > /dev/null 2>&1 || fail "data make text"

# alike NAME TOLERANCE RANKS RECIPE ARGS: ten steps on the CPU, on devices, and on devices without NCCL.
alike() {
  name=$1 tolerance=$2 ranks=$3
  shift 3
  set -- "$mslua" train "$@" -n "$ranks" --max-steps 10 --log-every 1
  run "$@" --out "$name.cpu"
  expect "$name on the CPU" 0 ""
  run cuda "$@" --out "$name.nccl" --device cuda
  expect "$name over NCCL" 0 ""
  refuse "$name over NCCL" "$staged"
  run without "$@" --out "$name.staged" --device cuda
  expect "$name staged" 0 "$staged: rank 0: libnccl.so.2 was not found"
  near "$name, the CPU" "$tolerance" "$name.cpu/rank_0.log" "$name.nccl/rank_0.log"
  near "$name, staged" "$tolerance" "$name.staged/rank_0.log" "$name.nccl/rank_0.log"
}
alike quickstart 1e-5 2 "$recipes/quickstart.lua"
alike lenet 1e-4 4 "$recipes/lenet_mnist.lua" data_path=mnist batch_size=4
alike char_gpt_bf16 1e-2 2 "$recipes/char_gpt.lua" --preset smoke data_path=text block=16 batch_size=4 train.amp=bf16

# Two runs give the same bits, whatever the order of the streams' work.
EMULATED_DEVICE_SEED=7 EMULATED_DEVICE_ORDER=random run cuda "$mslua" train "$recipes/quickstart.lua" -n 2 \
  --max-steps 10 --log-every 1 --out shuffled --device cuda
grep ^epoch quickstart.nccl/rank_0.log > one.txt
grep ^epoch shuffled/rank_0.log > two.txt
[ -s one.txt ] && cmp -s one.txt two.txt || fail "shuffled: the bits differ"

# Asked for by name.
train() {
  run "$@" "$mslua" train "$recipes/quickstart.lua" -n 2 --max-steps 3 --log-every 1 --backend nccl --device cuda
}
train cuda
expect "backend nccl" 0 "loss is"
train without
expect "no NCCL" 4 "NCCL cannot be used: rank 0: libnccl.so.2 was not found"
count "no NCCL" 1 "install NCCL (libnccl2)"
EMULATED_DEVICE_COUNT=1 train cuda
expect "one device" 4 "2 ranks on this host, which has 1 device: start fewer ranks, or set MSLUA_SHARE_DEVICE=1"
EMULATED_DEVICE_COUNT=1 MSLUA_SHARE_DEVICE=1 train cuda
expect "a shared device" 0 "$staged: rank 0 and rank 1 use one device"
run cuda "$mslua" train "$recipes/quickstart.lua" -n 2 --max-steps 3 --backend nccl
expect "on the CPU" 2 "add --device cuda"
cat > init.lua << 'LUA'
local ms = require "mslua"
ms.set_context { device_target = "GPU" }
ms.communication.init "nccl"
print("rank " .. ms.communication.get_rank() .. " of " .. ms.communication.get_group_size())
LUA
run cuda "$mslua" run init.lua -n 2
expect "init" 0 "rank 1 of 2"
run without "$mslua" run init.lua -n 2
expect "init without NCCL" 4 "NCCL cannot be used"
run cuda "$mslua" run init.lua
expect "init of one rank" 0 "rank 0 of 1"
echo 'require("mslua").communication.init "native"' >> init.lua
run cuda "$mslua" run init.lua -n 2
expect "another back end" 2 "the ranks are joined by the back end nccl already, not native"

# NCCL that stops answering, a rank that skips a collective, an error of NCCL's: all ranks end within seconds, and the
# error names the collective and the recipe's line.
cp "$recipes/quickstart.lua" .
broken() {
  begun=$(date +%s)
  EMULATED_NCCL_FAULT=$2 run cuda "$mslua" train quickstart.lua -n 2 --hang-timeout 1 --device cuda
  expect "$1" "$3" "$4"
  expect "$1" "$3" "all_reduce sum f32["
  expect "$1" "$3" "quickstart.lua:"
  [ $(($(date +%s) - begun)) -le 15 ] || fail "$1: took $(($(date +%s) - begun)) s"
  no_leftovers "$1"
}
broken hang hang:1:6 6 "NCCL does not answer"
broken skip skip:1:6 6 "rank 0 calls all_gather u8[191] at NCCL: all_reduce"
broken error error:1:6 4 "remote process exited"

# Beside Open MPI.
MSLUA=$mslua run cuda "$recipes/cluster/mpirun.sh" quickstart.lua 2 --max-steps 10 --log-every 1 --out mpirun \
  --device cuda --backend nccl
expect "mpirun" 0 "rank 0 of 2 (Open MPI), mpi"
near "mpirun" 1e-5 quickstart.nccl/rank_0.log mpirun/rank_0.log

# Four ranks have devices 0 to 3, and hold nothing when they end.
cat > ranked.sh << 'SH'
#!/bin/sh
EMULATED_DEVICE_LEAKS=rank_$OMPI_COMM_WORLD_RANK.txt exec "$PROGRAM" "$@"
SH
chmod +x ranked.sh
EMULATED_DEVICE_COUNT=4 PROGRAM=$mslua MSLUA=$PWD/ranked.sh run cuda "$recipes/cluster/mpirun.sh" quickstart.lua 4 \
  --max-steps 2 --device cuda --backend nccl
expect "mpirun of four ranks" 0 "rank 0 of 4 (Open MPI), mpi"
for rank in 0 1 2 3; do
  grep -q "^device $rank allocations 0 pinned 0 streams 0 events 0 graphs 0 communicators 0 " "rank_$rank.txt" ||
    fail "mpirun of four ranks: rank $rank: $(cat "rank_$rank.txt")"
done

# A rank that is killed.
cuda "$mslua" train quickstart.lua -n 2 epochs=100000 --log-every 100 --device cuda > killed.txt 2>&1 &
job=$!
until grep -q loss killed.txt; do
  kill -0 $job 2> /dev/null || break
  sleep 0.1
done
begun=$(date +%s)
kill -KILL $(ours 1) || fail "killed: rank 1 is not there"
wait $job
code=$? out=$(cat killed.txt)
expect "killed" 5 "rank 1/2"
[ $(($(date +%s) - begun)) -le 5 ] || fail "killed: took $(($(date +%s) - begun)) s"
no_leftovers "killed"

run cuda "$mslua" doctor
expect "doctor" 0 "NCCL 2.28.9"
run without "$mslua" doctor
expect "doctor without NCCL" 0 "libnccl.so.2 was not found"

finish
