"""Which component may include which.

tools/lint checks every #include against this table, and Bazel every dependency: `includers` makes a library visible to
the components that may include it. docs/explanation/architecture.md describes the components.

A component is a folder with everything below it; a file belongs to the longest name that matches. What the names on
the right may include is allowed too.
"""

COMPONENTS = {
    "core/base": [],
    "core/json": ["core/base"],
    "core/device": ["core/base"],
    "core/files": ["core/base"],
    "core/image": ["core/base"],
    "core/op": ["core/base"],
    "core/graph": ["core/op"],
    "core/kernels": ["core/op"],
    "core/kernels/simd": ["core/kernels"],
    "core/kernels/amx": ["core/kernels"],
    "core/kernels/cuda": ["core/op", "core/device"],
    "core/kernels/onednn": ["core/kernels"],
    "core/kernels/select": ["core/kernels/simd", "core/kernels/amx", "core/kernels/onednn"],
    "core/onnx": ["core/graph"],
    "core/ops/declare": ["core/graph", "core/kernels/simd"],
    "core/fields": ["core/base"],
    "core/optim": ["core/graph", "core/fields"],
    "core/schedule": ["core/fields"],
    "core/ops": ["core/onnx", "core/ops/declare", "core/kernels/select", "core/kernels/cuda", "core/optim"],
    "core/ops/testing": ["core/ops", "core/autodiff"],
    "core/autodiff": ["core/graph"],
    "core/sharding": ["core/graph", "core/json"],
    "core/sharding/search": ["core/sharding"],
    "core/sharding/testing": ["core/sharding", "core/autodiff"],
    "core/passes": ["core/graph", "core/sharding"],
    "rendezvous/tls": ["core/base", "core/json"],
    "rendezvous": ["rendezvous/tls"],
    "collectives": ["core/base"],
    "collectives/host": ["collectives", "rendezvous"],
    "collectives/net": ["collectives", "rendezvous"],
    "collectives/backends": ["collectives/host", "collectives/net", "core/device"],
    "collectives/nccl": ["collectives", "core/device"],
    "core/runtime": ["core/passes", "core/image", "collectives/nccl", "core/kernels/cuda"],
    "core/runtime/testing": ["core/runtime", "collectives/host"],
    "core/text": ["core/json", "core/files"],
    "core/data": ["core/json", "core/fields", "core/files"],
    "core/checkpoint": ["core/sharding", "core/files", "core/json", "core/optim"],
    "core/train": ["core/runtime", "core/data", "core/checkpoint", "core/schedule"],
    "core/step": ["core/train", "core/optim", "core/autodiff", "core/sharding/search", "core/kernels/onednn"],
    "cli": ["core/base"],
    "launch": ["collectives/backends", "core/image"],
    "attach/server": ["core/train", "rendezvous"],
    "attach/client": ["attach/server"],
    "train": ["core", "launch", "attach/server"],
    "lua": ["core", "cli", "train"],
    "repl": ["lua", "attach/client"],
    "verbs/support": ["repl"],
    "verbs": ["verbs/support"],
    "bench": ["*"],
    "tools": ["*"],
    "tests": ["*"],
}

# What tests (x_test.cc), fuzz targets (x_fuzz.cc) and benchmarks (x_bench.cc) beside their source may include as well.
TESTS = {
    "cli": ["verbs"],
    "collectives": ["collectives/host"],
    "collectives/net": ["collectives/backends"],
    "core/autodiff": ["core/ops"],
    "core/checkpoint": ["core/ops"],
    "core/graph": ["core/ops"],
    "core/kernels/simd": ["core/ops/testing"],
    "core/onnx": ["core/json", "core/ops"],
    "core/ops": ["core/ops/testing"],
    "core/optim": ["core/ops"],
    "core/passes": ["core/autodiff", "core/ops"],
    "core/runtime": ["core/runtime/testing", "core/autodiff"],
    "core/sharding": ["core/ops", "core/sharding/testing", "core/sharding/search", "core/runtime/testing"],
    "core/sharding/search": ["core/autodiff", "core/ops"],
    "core/step": ["collectives/host", "core/ops"],
    "repl": ["verbs"],
}

def _component_of(package):
    """The longest name that holds `package`; empty for none."""
    longest = ""
    for name in COMPONENTS:
        if (package == name or package.startswith(name + "/")) and len(name) > len(longest):
            longest = name
    return longest

def _reachable(names):
    """What `names` may include, with themselves."""
    seen = {}
    todo = list(names)
    for _ in range(10000):  # Starlark has no loop without an end
        if not todo:
            break
        name = todo.pop()
        if name in seen:
            continue
        seen[name] = True
        if name in COMPONENTS:
            todo.extend(COMPONENTS[name])
        else:  # a folder of components
            todo.extend([c for c in COMPONENTS if c.startswith(name + "/")])
    return seen

def includers():
    """The visibility of a library of this package: the components whose code or tests may include it."""
    target = _component_of(native.package_name())
    visible = ["//%s:__subpackages__" % target]
    for name, allowed in COMPONENTS.items():
        reached = _reachable(allowed + TESTS.get(name, []))
        if name != target and (target in reached or "*" in reached):
            visible.append("//%s:__subpackages__" % name)
    return visible
