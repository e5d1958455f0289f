#!/bin/bash
# tools/gpu_check from a folder like an unpacked archive: on the emulated device, and where there is none.
set -u
mslua=$(readlink -f "$1") emulated=$(readlink -f "$2") source=$PWD
work=$TEST_TMPDIR/gpu_check
mkdir -p "$work/bin" "$work/lib" "$work/cuda" "$work/tools" "$work/bench" "$work/tests/recovery"
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

cp -rL "$source/tools/gpu_check" "$source/tools/gpu" "$work/tools/"
cp -rL "$source/bench/training" "$work/bench/"
cp -L "$source/tests/recovery/lenet.lua" "$work/tests/recovery/"
ln -s "$mslua" "$work/bin/mslua"
counts='3 operators, 0 without a kernel, 5 calls, 5 kernels'
printf '#!/bin/sh\necho "%s, 0 failures"\n' "$counts" > "$work/bin/operators_test"
printf '#!/bin/sh\necho "90 calls by cuDNN"\necho "14 calls by cuDNN"\n' > "$work/bin/cudnn_test"
printf '#!/bin/sh\necho "[  PASSED  ] 1 test."\n' > "$work/bin/nccl_test"
chmod +x "$work/bin/operators_test" "$work/bin/cudnn_test" "$work/bin/nccl_test"
echo '{"commit": "0123abc", "date": "2026-01-01"}' > "$work/manifest.json"
for name in libcuda.so.1 libnvrtc.so.12 libcublasLt.so.12; do ln -s "$emulated" "$work/cuda/$name"; done
# One compute thread a rank, as its ranks outnumber the cores.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
export HOME=$work XDG_RUNTIME_DIR=$work XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1

out=$(MSLUA_CUDA_LIBRARIES=/nowhere tools/gpu_check run 2>&1)
code=$?
[ $code = 4 ] || fail "without a device: exit code $code"
[ "$(printf '%s\n' "$out" | wc -l)" = 1 ] || fail "without a device: $out"
case $out in *"libcuda.so.1 was not found"*) ;; *) fail "without a device: $out" ;; esac
[ ! -e gpu_check.md ] || fail "without a device: a report was written"

export MSLUA_CUDA_LIBRARIES=$work/cuda EMULATED_DEVICE_OPTIMIZE=1
out=$(tools/gpu_check run --out out --sections operators,cudnn,resume,ranks,workloads --workloads "quick start" \
  --steps 3 --rounds 1 --no-peers --minutes 60 --patience 20 2>&1)
code=$?
[ $code = 0 ] || fail "exit code $code: $out"
for row in "every operator against float64 | ok | 3 operators" \
  "convolutions, attention by cuDNN | ok | 104 calls" \
  "a resumed run is an uninterrupted one | ok | 24 losses" \
  "2 ranks that share a device | ok" "4 ranks that share a device | ok" "trainings | not run | left out" \
  "PyTorch, its CUDA | left out by --no-peers" \
  "NCCL with one rank: every collective | ok" "NCCL between devices | not run" \
  "| fused | cuda | 4 | " "| matmul | cublas | 5 | " "overheads | not run | left out" "## Memory" \
  "| quick start, f32 | " "GPT-2, 16 x 1024" "0123abc"; do
  grep -qF "$row" out/gpu_check.md || fail "the report has no '$row': $(cat out/gpu_check.md)"
done
python3 -c 'import json; row = json.load(open("out/gpu_check.json"))["workloads"][0]
assert row["mslua_ms"] > 0 and row["floor_ms"] > 0 and row["mslua_mb"] > 0 and row["ceilings"]["f32_flops"] > 0' ||
  fail "gpu_check.json"

# A program that ends at once, and one that prints no time.
python3 - << 'PY' || fail "lines of a workload"
import os, sys
sys.path.insert(0, "tools/gpu")
import workloads
bench = workloads.Workloads({"program": "true", "training": ""}, os.environ, lambda: 60, None)
lines, _, _ = bench.lines(["printf", r'{"a": 1}\n{"b": 2}\n'])
assert lines == [{"a": 1}, {"b": 2}], lines
bench.options = type("Options", (), {"steps": 1, "rounds": 1, "peers": False, "autotune": False})
bench.measure("quick start", "f32")
assert bench.rows[0]["problems"] == ["mslua: mslua prof printed no time of a step"], bench.rows
PY

# mslua takes the arguments of every workload.
python3 - << 'PY' || fail "arguments of workloads"
import os, subprocess, sys
sys.path.insert(0, "tools/gpu")
import workloads
bench = workloads.Workloads({"program": "bin/mslua", "training": "bench/training"}, os.environ, lambda: 60, None)
for name in workloads.WORKLOADS:
    for dtype in workloads.types_of(name):
        program, _, *arguments = bench.prof(name, dtype)[:-3]
        subprocess.run([program, "plan", "--device", "h200"] + arguments, check=True, stdout=subprocess.DEVNULL)
PY

# The loader and checkpoints, with networks that the emulated device has time for.
python3 - << 'PY' || fail "overheads"
import os, sys
sys.path.insert(0, "tools/gpu")
import overheads
overheads.LOADER.update(batch=4, steps=14, arguments=["network=lenet", "image_size=32", "batch_size=4", "batches=2"])
overheads.SAVING.update(batch=2, steps=16, every=3, arguments=["layers=1", "dim=16", "block=8", "batch_size=2"])
places = {"program": "bin/mslua", "training": "bench/training"}
options = type("Options", (), {"steps": None})
beside = overheads.Overheads(places, dict(os.environ), lambda: 600, options)
beside.all()
loader, saving = beside.rows
assert loader["loaded_ms"] > 0 and loader["resident_ms"] > 0, loader
assert saving["longest_ms"] > 0 and saving["step_ms"] > 0 and "for each save" in saving["detail"], saving
overheads.LOADER.update(arguments=["nosuch=1"])
beside.loader()
assert "nosuch" in beside.rows[-1]["detail"], beside.rows[-1]
PY

printf '#!/bin/sh\necho "%s, 2 failures"\nexit 1\n' "$counts" > bin/operators_test
out=$(tools/gpu_check run --out bad --sections operators 2>&1)
code=$?
[ $code = 1 ] || fail "a check that fails: exit code $code: $out"
grep -qF "every operator against float64 | failed" bad/gpu_check.md || fail "a check that fails is not in the report"
printf '#!/bin/sh\necho "skipped: libcudnn.so.9 was not found: ..."\n' > bin/cudnn_test
out=$(tools/gpu_check run --out bad --sections cudnn 2>&1)
grep -qF "by cuDNN | not run | libcudnn.so.9 was not found" bad/gpu_check.md || fail "without cuDNN: $out"
out=$(tools/gpu_check run --sections nosuch 2>&1)
case $out in *"unknown 'nosuch': expected operators"*) ;; *) fail "an unknown section: $out" ;; esac
exit $failed
