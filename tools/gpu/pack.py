"""One archive with all that gpu_check needs on another machine."""
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time

LIMIT = 40 << 20
# Of every Linux machine: those of glibc, and of the driver.
SYSTEM = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libcuda.so")
TARGETS = {"mslua": "//verbs:mslua", "operators_test": "//tests/emulated_device:operators_test",
           "nccl_test": "//tests/emulated_device:nccl_test"}


def build(root):
    """Paths of the programs, by name."""
    script = ('root=$1; shift; . "$root/tools/build.sh"; install_packages; set_cache; '
              'run_bazel build --symlink_prefix=.build/gpu- --show_result=0 --ui_event_filters=-info "$@"')
    run = subprocess.run(["sh", "-c", script, "sh", root] + list(TARGETS.values()), stdin=subprocess.DEVNULL)
    if run.returncode != 0:
        raise SystemExit("gpu_check: the build failed; its messages stand above")
    return {name: os.path.join(root, ".build", "gpu-bin", target[2:].replace(":", "/"))
            for name, target in TARGETS.items()}


def libraries_of(programs):
    found = {}
    for program in programs:
        out = subprocess.run(["ldd", program], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout
        for line in out.splitlines():
            name, arrow, rest = line.strip().partition(" => ")
            if arrow and not name.startswith(SYSTEM) and rest.startswith("/"):
                found[name] = os.path.realpath(rest.split(" ")[0])
    return found


def pack(root, archive):
    programs = build(root)
    with tempfile.TemporaryDirectory() as scratch:
        top = os.path.join(scratch, "gpu_check")
        for folder in ("bin", "lib"):
            os.makedirs(os.path.join(top, folder))
        for name, path in programs.items():
            subprocess.run(["strip", "-o", os.path.join(top, "bin", name), path], check=True)
        for name, path in libraries_of(programs.values()).items():
            shutil.copyfile(path, os.path.join(top, "lib", name))
        for file in ("tools/gpu_check", "tests/recovery/lenet.lua"):
            os.makedirs(os.path.join(top, os.path.dirname(file)), exist_ok=True)
            shutil.copy(os.path.join(root, file), os.path.join(top, file))
        for folder in ("tools/gpu", "bench/training"):
            shutil.copytree(os.path.join(root, folder), os.path.join(top, folder),
                            ignore=shutil.ignore_patterns("__pycache__", "BUILD", "*.cc"))
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, stdout=subprocess.PIPE, check=True,
                                universal_newlines=True).stdout.strip()
        with open(os.path.join(top, "manifest.json"), "w", encoding="utf-8") as file:
            json.dump({"commit": commit, "date": time.strftime("%Y-%m-%d", time.gmtime())}, file)
        partial = archive + ".partial"
        with tarfile.open(partial, "w:xz", preset=6) as out:
            out.add(top, "gpu_check")
    size = os.path.getsize(partial)
    if size > LIMIT:
        os.unlink(partial)
        raise SystemExit("gpu_check: the archive has %.1f MiB, more than the %d that it may have" % (
            size / 2**20, LIMIT >> 20))
    os.replace(partial, archive)
    return size
