"""gpu_check.md: what was found, as it came out."""
import workloads

MOST_KERNELS = 12  # of a workload


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in rows])


def number(value, unit=""):
    return "" if value is None else "%.4g%s" % (value, unit)


def times(found):
    rows = []
    for row in found["workloads"]:
        torch = row.get("torch", {})
        best = torch.get(row.get("best"), {})
        ways = ", ".join("%s %.4g" % (way, x["ms"]) for way, x in torch.items())
        starts = ", ".join("%.2f" % s for s in row.get("mslua_start_s", []))
        rows.append([row["workload"], number(row.get("mslua_ms")), number(row.get("floor_ms")), ways,
                     number(row.get("ratio")), starts, "; ".join(row["problems"])])
    return table(["workload", "mslua ms", "floor ms", "PyTorch ms", "best PyTorch / mslua",
                  "start s: empty caches, full", "what did not run"], rows)


def memory(found):
    rows = []
    for row in found["workloads"]:
        best = row.get("torch", {}).get(row.get("best"), {})
        ours, theirs = row.get("mslua_mb"), best.get("mb")
        rows.append([row["workload"], number(ours), number(theirs), number(best.get("reserved_mb")),
                     number(ours / theirs) if ours and theirs else "", number(row.get("mslua_process_mb"))])
    return table(["workload", "mslua MiB", "PyTorch MiB: allocated", "reserved", "mslua / allocated",
                  "mslua's process MiB"], rows)


def kernels(row):
    rows = [[k["operator"], k["kernel"], k["count"], number(k["ms"]), number(k["floor_ms"]),
             number(100 * k["floor_ms"] / k["ms"]) if k["ms"] else "", number(k["gbs"]), number(k["gflops"] / 1e3)]
            for k in row["kernels"][:MOST_KERNELS]]
    return table(["operator", "kernel", "launches", "ms a step", "floor ms", "% of the floor's rate", "GB/s",
                  "TFLOP/s"], rows)


def text(found):
    machine = found["machine"]
    lines = ["# mslua on a CUDA device", "",
             "Written by `tools/gpu_check run` on %s, at commit %s." % (found["date"], found["built"]["commit"]), "",
             table(["what", "found"], [["devices", "; ".join(machine["devices"]) or "nvidia-smi does not say"],
                                       ["PyTorch, its CUDA", machine["torch"] or "not there: mslua alone was timed"],
                                       ["compute-sanitizer", machine["compute-sanitizer"] or "not there"],
                                       ["processor cores", machine["cores"]]]), ""]
    ceilings = found["ceilings"]
    rates = ", ".join("%s %.3g" % rate for rate in ceilings.items()) if ceilings else "none, without PyTorch"
    lines += ["Rates measured in this run: %s." % rates, ""]
    lines += ["## Results", "", table(["check", "state", "detail"],
                                      [[r["what"], r["state"], r["detail"]] for r in found["checks"]]), ""]
    lines += ["## Steps", "",
              "Medians, in milliseconds. Not measured: %s." % (
                  ", ".join(w for w in workloads.WORKLOADS
                            if not any(r["workload"].startswith(w) for r in found["workloads"])) or "nothing"), "",
              times(found), "",
              "A step's floor is the sum of its launches' floors: the longer of their operations and their traffic at "
              "the rates that mslua measures in the same run.", "", "## Memory", "",
              "What each allocates on the device, libraries' workspaces included, and what nvidia-smi says of the "
              "whole process of mslua.", "", memory(found), "", "## Beside the steps", "",
              table(["what", "found"], [[r["what"], r["detail"]] for r in found["overheads"]] or [["nothing", ""]]), ""]
    for row in found["workloads"]:
        if row.get("kernels"):
            lines += ["## Kernels: %s" % row["workload"], "", kernels(row), ""]
    lines += ["## mslua doctor", "", "```", found["doctor"] or "", "```", ""]
    return "\n".join(lines)
