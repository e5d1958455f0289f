"""gpu_check.md: what was found, as it came out."""
import workloads


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
        rows.append([row["workload"], number(row.get("mslua_ms")), ways, number(row.get("ratio")),
                     number(row.get("mslua_mb")), number(best.get("mb")), starts, "; ".join(row["problems"])])
    return table(["workload", "mslua ms", "PyTorch ms", "best PyTorch / mslua", "mslua MiB", "PyTorch MiB",
                  "start s, each round", "what did not run"], rows)


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
              times(found), "", "## mslua doctor", "", "```", found["doctor"] or "", "```", ""]
    return "\n".join(lines)
