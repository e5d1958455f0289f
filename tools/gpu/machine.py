"""What a machine has: devices, driver, the libraries that mslua opens, PyTorch, compute-sanitizer; and its rates."""
import glob
import json
import os
import shutil
import subprocess

CEILINGS = """
import json, time, torch
def best(f, n=5):
    f(); torch.cuda.synchronize()
    times = []
    for _ in range(n):
        begin = time.perf_counter(); f(); torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return min(times)
torch.backends.cuda.matmul.allow_tf32 = False
x = torch.empty(1 << 28, dtype=torch.float32, device="cuda"); y = torch.empty_like(x)
rates = {"copy_tb_s": 2 * x.numel() * 4 / best(lambda: y.copy_(x)) / 1e12}
del x, y
for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32)):
    n = 8192
    a, b = torch.randn(n, n, dtype=dtype, device="cuda"), torch.randn(n, n, dtype=dtype, device="cuda")
    rates[name + "_tflop_s"] = 2 * n ** 3 / best(lambda: a @ b) / 1e12
print(json.dumps(rates))
"""


def output_of(command, timeout=60, env=None):
    """The command's standard output; None where it cannot run or fails."""
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=timeout, env=env,
                             universal_newlines=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() if run.returncode == 0 else None


def library_folders():
    """Where the CUDA libraries of this machine may be: the loader's, CUDA_HOME, those of Python's wheels."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    for line in (output_of(["/sbin/ldconfig", "-p"]) or output_of(["ldconfig", "-p"]) or "").splitlines():
        if "libcuda.so.1 " in line and "=> " in line and "x86-64" in line:
            folders.append(os.path.dirname(line.split("=> ")[1]))
    folders += ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64"]
    home = os.environ.get("CUDA_HOME")
    folders += [os.path.join(home, "lib64")] if home else []
    folders += sorted(glob.glob("/usr/local/cuda*/lib64"), reverse=True)
    packages = output_of(["python3", "-c", "import site, sysconfig; print('\\n'.join(site.getsitepackages() + "
                          "[site.getusersitepackages(), sysconfig.get_paths()['purelib']]))"]) or ""
    for package in packages.splitlines():
        folders += sorted(glob.glob(os.path.join(package, "nvidia", "*", "lib")), reverse=True)
    return [f for f in dict.fromkeys(folders) if f and os.path.isdir(f)]


def sanitizer():
    """compute-sanitizer's path; None: it is not there."""
    found = shutil.which("compute-sanitizer")
    homes = [os.environ.get("CUDA_HOME") or ""] + sorted(glob.glob("/usr/local/cuda*"), reverse=True)
    for home in homes:
        path = os.path.join(home, "bin", "compute-sanitizer")
        if not found and home and os.path.exists(path):
            found = path
    return found


def describe(peers=True):
    """Names and versions, by what they are of; None: not there. PyTorch, which takes seconds to load, is left out where
    peers are."""
    fields = "name,driver_version,memory.total,compute_cap"
    torch = ["python3", "-c", "import torch; print(torch.__version__, torch.version.cuda)"]
    return {
        "devices": (output_of(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader"]) or "").splitlines(),
        "torch": output_of(torch) if peers else "left out by --no-peers",
        "compute-sanitizer": sanitizer(),
        "cores": os.cpu_count(),
    }


def ceilings():
    """Rates measured now with PyTorch; None without it."""
    found = output_of(["python3", "-c", CEILINGS], timeout=120)
    return json.loads(found.splitlines()[-1]) if found else None
