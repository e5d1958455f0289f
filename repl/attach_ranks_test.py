#!/usr/bin/env python3
"""Attaching to jobs of several ranks, through the program: what all ranks do at one step, equal bits, layouts, diag.

usage: attach_ranks_test.py PROGRAM [NAME]
"""

import glob
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

from attach_harness import RECIPE, ROOT, Job, Terminal, attach, attach_json, check, comes, main, measured, run

MPI = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4")
RESNET = os.path.abspath("recipes/resnet18_cifar10.lua")
# A step of some milliseconds.
LAUNCHES = {"native": ((), ("-n", "4")), "mpi": (MPI, ())}


def write(name, text):
    """A recipe of that name."""
    with open(os.path.join(ROOT, name), "w", encoding="utf-8") as f:
        f.write(text)
    return name


def data_parallel(text=RECIPE):
    return text.replace("train = {", 'parallel = { parallel_mode = "data_parallel", gradients_mean = true }, train = {')


def ranks_named(text):
    """The ranks of "[0,2-3] ..."."""
    ends = [part.split("-") for found in re.findall(r"\[([\d,-]+)\] ", text) for part in found.split(",")]
    return {rank for e in ends for rank in range(int(e[0]), int(e[-1]) + 1)}


def start(name, *args, launch="native", recipe="ranks.lua"):
    before, after = LAUNCHES[launch]
    write("ranks.lua", data_parallel())
    return Job(name, *args, *after, recipe=recipe, launch=before)


def steps_of_ranks():
    """The ranks' steps and phases, from one .ranks."""
    ranks = attach_json(".ranks", rw=False)[0]["answer"]["ranks"]
    return [r.get("step") for r in ranks], [r.get("phase") for r in ranks]


def transcript(job, name, shapes):
    """The flow of a person at a terminal; `shapes` of the parameter `w`, the activation `act` and the gradient `g`."""
    t = Terminal("attach")
    ok = t.expect(r"attached to [0-9a-f]{6} \w+ \(4 ranks, started .*observer", 60)
    ok = ok and t.expect(r"e\d+:s\d+ run> ")
    steps = steps_of_ranks()[0]
    for line, answer in (
            (".ranks", r"\n0 +\S+ +\d+ [^\n]*\n1 +\S+ [^\n]*\n2 +\S+ [^\n]*\n3 +\S+ "),
            (".layout %(w)s" % shapes, r"%(w)s  f32\S+  whole on ranks 0-3" % shapes),
            (".watch %(act)s every 2 limit 2" % shapes, r"watching \S*%(act)s f32\S+ every 2" % shapes),
            ("", r"s\d*[02468]  \S*%(act)s  mean[^\n]*\n" % shapes), (".pause", "take the writer lock first"),
            (".rw", "writer lock taken; what you do is recorded"),
            ("@all collectgarbage('count') < 50000", r"\[0-3\] true"),
            (".pause", r"paused at step \d+ on 4/4 ranks"), (".step 2", r"paused at step \d+ on 4/4 ranks"),
            (".stat %(w)s" % shapes, r"%(w)s f32\S+  mean .* identical on ranks 0-3 \(crc [0-9a-f]{8}\)" % shapes),
            (".set lr=0.005 at %d" % steps[0], r"at %d: expected a step that is to come" % steps[0]),
            (".set lr=0.005", r"lr \S+ -> 0.005 on 4/4"),
            (".resume", "resumed at step .* on 4/4"),
            (".grad %(w)s" % shapes, r"grad\(%(w)s\) f32\S+  mean .* identical on ranks 0-3" % shapes),
            (".comm 3", r"done on 0-3"), (".plot loss", ", loss"),
            (".prof 2", r"profiled up to step \d+ on 4 ranks -> (\S+) .*\n compute \d+%  collectives \d+%"),
            (".save mine", r"saved .*mine"), ("@2 .mem", "store"), (".mode csv", "run!>"), (".status", r"\d+,\d+,\w"),
            (".mode table", "run!>"), ("?ops.relu", "relu")):
        t.send(line + "\n")
        ok = t.expect(answer, 60) and ok
    t.send(".detach\n")
    ok = t.expect("detached; training continues") and ok
    t.end()
    check("a session with 4 ranks, " + name, ok)
    trace = glob.glob(job.folder + "/trace/*.json")
    events = json.load(open(trace[0], encoding="utf-8"))["traceEvents"] if trace else []
    check("the trace holds all ranks and threads",
          {(e["pid"], e["tid"]) for e in events if "tid" in e} == {(r, t) for r in range(4) for t in range(4)}, trace)
    check("the trace names all ranks and marks steps",
          {e["pid"] for e in events if e["name"] == "process_name"} == set(range(4)) and
          all(e["name"].startswith("step ") for e in events if e.get("cat") == "step"), trace)
    done = run("stop")
    _, err, code = job.end()
    check("all ranks stop and save, " + name, done.returncode == 0 and code == 75, (done, err[-500:], code))
    said = re.search(r"stops at step (\d+) on 4/4", done.stdout)
    check("the step of the stop is the checkpoint's, " + name, said and "stopped at step %s;" % said.group(1) in err,
          (done.stdout, err[-500:]))
    with open(job.folder + "/events.jsonl", encoding="utf-8") as lines:
        recorded = [json.loads(line)["command"] for line in lines]
    newest = max(glob.glob(job.folder + "/ckpt/**/MANIFEST.json", recursive=True), key=os.path.getmtime)
    with open(newest, encoding="utf-8") as f:
        saved = [i["command"] for i in json.load(f)["run"]["interventions"]]
    check("what was done is recorded, and in the checkpoint",
          ".step 2" in recorded and saved == recorded[:len(saved)] and ".resume" in saved, (recorded, saved))


WALK = {"w": "w2", "act": "Net/matmul"}


def test_transcript_native():
    transcript(start("native", "steps=100000000", "nap=0.002"), "native", WALK)


def test_transcript_mpi():
    transcript(start("mpi", "steps=100000000", "nap=0.002", launch="mpi"), "mpi", WALK)


def pauses(times, launch="native"):
    """Pauses at random times; the losses are those of the uninterrupted run, byte for byte."""
    random.seed(5)
    steps = 150 + 15 * times
    quiet = start("quiet", "steps=%d" % steps, "--no-attach", launch=launch).end()
    job = start("loud", "steps=%d" % steps, "nap=0.005", launch=launch)
    made, unequal = 0, []
    while made < times and job.process.poll() is None:
        time.sleep(random.random() * 0.05)
        text, code = attach(".pause")
        if code != 0:
            break
        made += " on 4/4 ranks" in text
        steps, phases = steps_of_ranks()
        if len(set(steps)) != 1 or set(phases) != {"paused"}:
            unequal.append((steps, phases))
        more = [(), (".stat w", ".step"), (".stat Net/matmul", ".step 3"), (".grad w", ".step")][made % 4]
        _, code = attach(*more, ".resume")
        check("commands between pauses, %d" % made, code == 0, more)
    loud = job.end(300)
    check("every pause finds all ranks at one step", not unequal, unequal[:3])
    check("%d pauses were made" % times, made == times, (made, loud[1][-500:]))
    check("the losses are those of an uninterrupted run", quiet[0] == loud[0] and quiet[0] != "",
          (quiet[0][-200:], loud[0][-200:], quiet[1][-300:]))


def test_pauses():
    pauses(6)


def test_breaks_and_leases():
    job = start("b", "steps=100000000", "nap=0.002")
    t = Terminal("attach", "--rw")
    ok = t.expect("writer lock taken")
    t.send(".break loss<1000\n")
    ok = ok and t.expect(r"pauses at: loss<1000")
    ok = ok and t.expect(r"break loss<1000: paused at step \d+, loss .* on rank \d")
    steps, phases = steps_of_ranks()
    check("a break pauses all ranks at one step", ok and len(set(steps)) == 1 and set(phases) == {"paused"},
          (steps, phases))
    os.kill(t.pid, signal.SIGKILL)
    os.waitpid(t.pid, 0)
    check("a dead client's pause ends on all ranks", comes(lambda: "paused" not in steps_of_ranks()[1], 15))
    job.process.send_signal(signal.SIGTERM)
    _, err, code = job.end()
    check("a job of ranks ends when asked", code == 75, (code, err[-500:]))


def test_signal_while_paused():
    job = start("s", "steps=100000000", "nap=0.002")
    text, code = attach(".pause")
    check("paused", code == 0, text)
    ranks = attach_json(".ranks", rw=False)[0]["answer"]["ranks"]
    os.kill(ranks[2]["pid"], signal.SIGTERM)
    _, err, code = job.end()
    check("one rank's signal ends a paused job", code == 75, (code, err[-500:]))


def test_stop_while_paused():
    """No step is made after the pause."""
    job = start("p", "steps=100000000", "nap=0.002")
    text, code = attach(".pause", ".stop")
    steps = re.findall(r"(?:paused|stops) at step (\d+) on 4/4", text)
    _, err, status = job.end()
    check("a paused job stops where it is", code == 0 and len(steps) == 2 and steps[0] == steps[1] and status == 75
          and "stopped at step %s;" % steps[0] in err, (text, err[-500:], status))


def test_diagnosis():
    text = data_parallel().replace("if p.nap > 0 then", "if p.nap > 0 and ms.communication.get_rank() == 1 then")
    write("sleep.lua", text)
    job = start("r", "steps=1000000", "nap=4", recipe="sleep.lua")
    listed = run("ps", "--json").stdout.splitlines()
    check("ranks are one job", len(listed) == 1 and '"ranks":4' in listed[0], listed)

    def names_the_rank():
        began = time.time()
        done = run("diag")
        measured("diag of 4 ranks, one asleep in its dataset", time.time() - began)
        return re.search(r"ranks 0,2-3 wait for rank 1, in its data .*sleep.lua:\d+, in all_reduce", done.stdout)

    check("diag names the rank that the others wait for, where it is, and the collective", comes(names_the_rank))
    text, _ = attach(".comm 2", "@all 1 + 1", "@1 40 + 2", "@1,3 .mem")
    check("who has not come is named", "not entered by 1" in text, text)
    check("Lua runs at the ranks that are meant", "[0-3] 2" in text and "[1] 42" in text, text)
    check("snapshots come from the ranks that are meant", "rank 1\n" in text and "rank 3\n" in text and
          "rank 0\n" not in text, text)
    for bomb in ("while true do end", "local t = {} while true do t[#t + 1] = string.rep('x', 1e6) .. #t end"):
        before = time.time()
        text, code = attach("@all " + bomb)
        measured("to the end on 4 ranks of " + bomb[:40], time.time() - before)
        # On a slow machine some ranks run out of memory and some out of time.
        check("ended on all ranks: " + bomb, code == 2 and ranks_named(text) == {0, 1, 2, 3}, text[-300:])
    job.kill()


def test_nan():
    """One rank's loss is NaN: all ranks pause after that step, can be looked at, and end at .resume."""
    text = data_parallel().replace('return ms.rand({ 32 }, ms.float32, "x" .. i % 7)', """
  if io.open("bad") and ms.communication.get_rank() == 2 then
    return ms.rand({ 32 }, ms.float32, "x"), ms.rand({ 4 }, ms.float32, "y") * (0 / 0)
  end
  return ms.rand({ 32 }, ms.float32, "x" .. i % 7)""")
    job = start("nan", "steps=100000000", "nap=0.002", recipe=write("nan.lua", text))
    t = Terminal("attach", "--rw")
    ok = t.expect("writer lock taken")
    t.send(".break nan\n")
    ok = ok and t.expect("pauses at: nan")
    write("bad", "")
    ok = ok and t.expect(r"break nan: rank 2: the loss of step \d+ is -?nan: paused")
    steps, phases = steps_of_ranks()
    check("NaN pauses all ranks at one step", ok and len(set(steps)) == 1 and set(phases) == {"paused"},
          (steps, phases))
    t.send(".stat w\n")
    ok = t.expect(r"w f32\S+  mean")
    t.send(".resume\n")
    _, err, code = job.end()
    check("and the job ends as diverged", ok and code == 7 and "loss" in err, (code, err[-500:]))
    os.unlink(os.path.join(ROOT, "bad"))


SHARDED = RECIPE.replace("ops.MatMul(), ops.ReLU(), ops.MatMul()",
                         "ops.MatMul():shard{{1, 1}, {1, 2}}, ops.ReLU(), ops.MatMul():shard{{1, 2}, {2, 2}}")
SHARDED = SHARDED.replace("train = {", 'parallel = { parallel_mode = "semi_auto_parallel" }, train = {')


def test_layouts():
    write("shard.lua", SHARDED)
    job = start("y", "steps=1000000", "nap=0.002", recipe="shard.lua")
    text, code = attach(".layout w2", ".layout w", rw=False)
    check("the parts of a sharded parameter are drawn",
          code == 0 and re.search(r"w2  f32\[16,4\]  layout .*4 parts of \[8,2\]", text)
          and re.search(r"\[1:2\] +\[3:4\]", text) and re.search(r"\[9:16\] +r\d +r\d", text), text)
    text, code = attach("@1 .dump w2 one.safetensors", ".dump w2", ".dump w2 whole.safetensors",
                        ".watch w2 limit 1", "@1 .watch w2 limit 1", ".watch Net/matmul limit 1", rw=False)
    check("a sharded parameter is dumped whole", code == 0 and "\nw2 f32[16,4]\n" in text
          and re.match(r"w2 f32\[8,2\], rank 1's part \[\d+:\d+,\d:\d\] of f32\[16,4\] of step", text), text)
    check("and watched whole", "watching w2 f32[16,4] every 1 step, 1 samples\n" in text
          and re.search(r"watching w2 f32\[8,2\] every 1 step, 1 samples, rank 1's part \[", text)
          and re.search(r"watching Net/matmul .*, rank 0's value", text), text)
    whole = floats_of(job.folder + "/dumps/whole.safetensors")
    values = attach_json(".dump w2", "@1 .dump w2", rw=False)
    check("every element is in its place", len(whole) == 64 and values[0]["answer"]["shape"] == [16, 4]
          and len(values[0]["answer"]["values"]) == 64, values)
    part = values[1]["answer"]
    with open(job.folder + "/dumps/one.rank_1.safetensors", "rb") as f:
        head = f.read(200)
    check("a part is called one", part["rank"] == 1 and part["whole"] == [16, 4] and part["shape"] == [8, 2]
          and b'"w2[%d:%d,%d:%d]"' % (part["begin"][0] + 1, part["begin"][0] + 8, part["begin"][1] + 1,
                                      part["begin"][1] + 2) in head, (part, head))
    text, code = attach(".pause", ".dump w2 a.safetensors", *["@%d .dump w2 b.safetensors" % r for r in range(4)])
    whole = floats_of(job.folder + "/dumps/a.safetensors")
    parts = [floats_of(job.folder + "/dumps/b%s.safetensors" % (".rank_%d" % r if r else "")) for r in range(4)]
    begins = [tuple(int(n) - 1 for n in found) for found in re.findall(r"rank \d's part \[(\d+):\d+,(\d+):", text)]
    check("the whole is made of the parts", code == 0 and len(begins) == 4 and len(set(begins)) == 4 and all(
        parts[r][2 * i + j] == whole[4 * (begins[r][0] + i) + begins[r][1] + j]
        for r in range(4) for i in range(8) for j in range(2)), (text, whole))
    t = Terminal("attach", "--rw")
    t.send(".stat Net/matmul\n")
    ok = t.expect("after the next step")
    t.send(".step\n")
    ok = t.expect(r"\[\d[\d,-]*\] Net/matmul f32\S+  mean [^\n]*\n\[\d[\d,-]*\] Net/matmul f32\S+  mean") and ok
    check("statistics that come later are each rank's", ok)
    t.send(".resume\n.detach\n")
    t.end()
    text, code = attach(".layout w", rw=False)
    check("and its copies", re.search(r"w  f32\[32,16\].*2 parts of \[32,8\].*2 copies", text), text)
    text, code = attach(".stat w2", ".stat w", rw=False)
    check("statistics are each rank's", code == 0 and len(re.findall(r"^\[\d\] w2 f32\[8,2\]", text, re.M)) == 4, text)
    text, code = attach("@2 .stat w2", "@all ms.communication.get_rank()", "@1 ms.communication.get_group_size()")
    check("statistics of the rank that is named, and Lua that knows its rank", code == 0
          and re.match(r"w2 f32\[8,2\]  mean [^\n]*\n\[0\] 0\n\[1\] 1\n\[2\] 2\n\[3\] 3\n\[1\] 4$", text.strip()), text)
    job.kill()


def test_lua_of_a_rank():
    """What Lua at a rank asks for, is that rank's."""
    write("shard.lua", SHARDED)
    job = start("lua", "steps=1000000", "nap=0.002", recipe="shard.lua")
    shards, code = attach(".pause", *["@%d .dump w2" % r for r in range(4)])
    firsts = [float(n) for n in re.findall(
        r"^w2 f32\[8,2\], rank \d's part \[\d+:\d+,\d:\d\] of f32\[16,4\]\n([^,]+),", shards, re.M)]
    text, _ = attach("@all ms.run.dump('w2').values[1]", "@all ms.run.stat('w2').rank", ".resume")
    said = [float(n) for n in re.findall(r"^\[\d\] (-?\d\.\d.*)$", text, re.M)]
    check("a rank's Lua sees that rank's shard", code == 0 and len(set(firsts)) == 4 and len(said) == 4
          and all(abs(a - b) < 1e-3 for a, b in zip(firsts, said)), (shards, text))
    check("and its statistics", "[0] 0\n[1] 1\n[2] 2\n[3] 3\n" in text, text)
    job.kill()


GRADIENTS = """
local ms = require "mslua"
local nn, ops = ms.nn, ms.ops
local p = ms.params { mode = "semi_auto_parallel", level = "", shard = 0, steps = 0, stages = 1, clip = 0.01,
  ranks = 1, threshold = 1 }
local Net = nn.Cell:extend "Net"
function Net:init()
  self.one, self.two = nn.Dense(32, 16), nn.Dense(16, 64)
  if p.shard == 1 then self.one:shard { { 1, 2 }, { 1, 2 } } self.two:shard { { 2, 1 }, { 1, 1 } } end
  if p.stages > 1 then self.one.pipeline_stage, self.two.pipeline_stage = 0, 1 end
end
function Net:construct(x) return self.two(ops.tanh(self.one(x))) end
return ms.recipe {
  name = "gradients", seed = 1,
  dataset = function()
    local x, y = ms.randn({ 32, 32 }, "float32", "x"), ms.randn({ 32, 64 }, "float32", "y")
    return ms.dataset.NumpySlicesDataset({ x, y }, { "x", "y" }):batch(32 * p.stages / p.ranks)
  end,
  network = function() return p.stages > 1 and nn.PipelineCell(Net(), 2) or Net() end,
  loss = nn.MSELoss(), optimizer = nn.Momentum { learning_rate = 0.0, momentum = 0.9 },
  train = {
    epochs = 100000000, max_steps = 100000000, clip_norm = p.clip > 0 and p.clip or nil,
    accumulate_steps = p.steps > 0 and p.steps or nil,
  },
  parallel = {
    parallel_mode = p.mode, gradients_mean = p.mode == "data_parallel" or nil,
    pipeline_stages = p.stages > 1 and p.stages or nil, enable_parallel_optimizer = p.level ~= "" or nil,
    parallel_optimizer_config = p.level ~= "" and {
      parallel_optimizer_threshold = p.threshold, optimizer_level = p.level ~= "slices" and p.level or nil,
    } or nil,
  },
}
"""


def floats_of(path):
    """The elements of the one f32 tensor of a .safetensors file."""
    with open(path, "rb") as f:
        data = f.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    return struct.unpack("<%df" % ((len(data) - begin) // 4), data[begin:])


def look_at_stages():
    """At parameters of both stages, of two ranks each."""
    text, code = attach(".stat one.weight", ".stat two.weight", ".dump two.bias", "@3 .dump two.bias", ".params weight",
                        ".layout two.bias", rw=False)
    check("the ranks of a stage answer for its parameters", code == 0
          and all(re.search(r"%s\.weight f32\S+  mean .* identical on ranks %s " % (n, ranks), text)
                  for n, ranks in (("one", "0-1"), ("two", "2-3")))
          and len(re.findall(r"two\.bias f32\S+\n-?\d[^\n]*,", text)) == 2, text)
    check("the parameters of all stages are listed", re.search(r"one\.weight .*  on 0-1\n", text)
          and re.search(r"two\.weight .*  on 2-3\n", text) and "elements on ranks 2-3\n" in text, text)
    check("where a stage's parameter is", "  not on ranks 0-1\n" in text, text)
    text, code = attach("@0 .dump two.bias", rw=False)
    check("a rank without the parameter says who has it",
          code == 2 and "two.bias is not on rank 0; it is on ranks 2-3: @2-3 " in text, text)


def test_gradients():
    """The rate is 0, so each step has the gradient of the first: whole, in every mode."""
    write("gradients.lua", GRADIENTS)
    want, first = [], ()
    for name, ranks, args in (("alone", 1, ()), ("data", 2, ("mode=data_parallel",)),
                              ("slices", 4, ("mode=data_parallel", "level=slices")), ("semi", 2, ()),
                              ("sums", 2, ("steps=4",)), ("cut", 4, ("shard=1",)), ("unclipped", 2, ("clip=0",)),
                              ("level1", 4, ("level=level1", "steps=2")), ("level2", 4, ("level=level2",)),
                              ("level3", 4, ("level=level3", "shard=1")), ("stages", 4, ("stages=2",)),
                              ("biases", 4, ("level=level3", "threshold=0")),
                              ("parts", 4, ("level=level3", "threshold=0", "stages=2")),
                              ("auto", 2, ("mode=auto_parallel", "level=level2"))):
        job = Job("grad_" + name, *args, "ranks=%d" % ranks, *(("-n", str(ranks)) if ranks > 1 else ()),
                  recipe="gradients.lua")
        answers = attach_json(*[".grad " + n for n in ("one.weight", "one.bias", "two.weight", "two.bias")], rw=False)
        text, code = attach(".dump grad(two.weight) %s/%s.safetensors" % (ROOT, name), rw=False)
        check("gradients are answered, " + name,
              code == 0 and len(answers) == 4 and all(a["ok"] for a in answers), (answers, text))
        if name == "stages":
            look_at_stages()
        stats = [a["answer"] for a in answers if a["ok"]]
        shapes = [s.get("type") for s in stats]  # ranks that do not agree have no common type
        check("gradients are whole, " + name, shapes == ["f32[16,32]", "f32[16]", "f32[64,16]", "f32[64]"], answers)
        norms = [s["stat"]["norm"] for s in stats if "stat" in s]
        want = want or norms
        if name == "unclipped":
            check("the others are clipped", len(norms) == 4 and norms[0] > 3 * want[0], (norms, want))
        else:
            check("gradients are those of one rank, " + name,
                  len(norms) == 4 and all(abs(a - b) <= 1e-4 * b for a, b in zip(norms, want)), (norms, want))
        dumped = floats_of("%s/%s.safetensors" % (ROOT, name)) if code == 0 else ()
        first = first or dumped
        if name != "unclipped":
            check("every element is in its place, " + name,
                  len(dumped) == 64 * 16 and max(abs(a - b) for a, b in zip(dumped, first)) <= 1e-5 * max(first),
                  dumped[:5])
        job.kill()


def test_two_hosts():
    """Two hosts: two network namespaces that a cable joins, the second without the first one's folder of sockets."""
    a, b, pid = "msa-a-%d" % os.getpid(), "msa-b-%d" % os.getpid(), os.getpid() % 10000
    ip = ["ip"] if os.geteuid() == 0 and shutil.which("ip") else ["false"]
    if subprocess.run([*ip, "netns", "add", a], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("not run: no network namespaces here", flush=True)
        return
    try:
        for command in ("netns add " + b, "link add va%d netns %s type veth peer name vb%d netns %s" % (pid, a, pid, b),
                        "-n %s addr add 10.79.0.1/24 dev va%d" % (a, pid),
                        "-n %s addr add 10.79.0.2/24 dev vb%d" % (b, pid), "-n %s link set lo up" % a,
                        "-n %s link set va%d up" % (a, pid), "-n %s link set lo up" % b,
                        "-n %s link set vb%d up" % (b, pid)):
            subprocess.run([*ip, *command.split()], check=True)
        two_hosts(a, b)
    finally:
        for job in Job.all:
            job.process.kill()
        for name in (a, b):
            subprocess.run([*ip, "netns", "del", name], check=False)


def two_hosts(a, b):
    recipe = write("hosts.lua", data_parallel())
    secret = os.path.join(ROOT, "secret")
    with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write("a secret of two hosts, of more than 16 bytes\n")
    env = {"MS_SCHED_HOST": "10.79.0.1", "MS_SCHED_PORT": "8123", "MS_WORKER_NUM": "2", "MSLUA_PLAINTEXT": "1",
           "MSLUA_JOB_SECRET_FILE": secret}
    worker, steps = dict(env, MS_ROLE="MS_WORKER"), ("steps=100000000", "nap=0.002")
    Job("sched", "--no-attach", recipe=recipe, launch=("ip", "netns", "exec", a), env=dict(env, MS_ROLE="MS_SCHED"))
    hidden = "mkdir -p -m 700 %s/mslua && mount -t tmpfs -o mode=0700 none %s/mslua && exec \"$@\"" % (ROOT, ROOT)
    other = Job("two", *steps, recipe=recipe, env=dict(worker, MS_NODE_ID="1"), wait=False,
                launch=("ip", "netns", "exec", b, "sh", "-c", hidden, "sh"))
    job = Job("two", *steps, recipe=recipe, env=dict(worker, MS_NODE_ID="0"), launch=("ip", "netns", "exec", a))
    if job.sockets() is None:
        check("two hosts meet", False, (job.end(), other.end()))
        return
    text, code = attach(".ranks", ".pause", ".step 2", ".stat Net/matmul", "@all 1 + 1", ".resume")
    check("ranks of another host are reached",
          code == 0 and "on 2/2 ranks" in text and "[0-1] 2" in text and re.search(r"^1 +\S+ +\d+ ", text, re.M), text)
    check("through rank 0 alone", not os.path.exists(job.sockets() + "/rank_1.sock"))
    run("stop")
    codes = job.end()[2], other.end()[2]
    check("both end", codes == (75, 75), codes)


def test_hundred_pauses():
    pauses(100)


def resnet(name, *args, launch="native"):
    """ResNet-18 of 8 channels on images made up."""
    if not os.path.exists(ROOT + "/images"):
        done = run("data", "make", "cifar10", "images", "--samples", "2000", timeout=300)
        check("images are made", done.returncode == 0, done)
    before, after = LAUNCHES[launch]
    path = subprocess.run(["find", ROOT + "/images", "-name", "data_batch_1.bin"], stdout=subprocess.PIPE, check=True,
                          text=True).stdout.strip()
    return Job(name, "--preset", "smoke", "train.max_steps=100000", "epochs=100000", "eval.every_steps=0",
               "data_path=" + os.path.dirname(path), *args, *after, recipe=RESNET, launch=before)


def test_resnet():
    for launch in LAUNCHES:
        job = resnet("resnet_" + launch, launch=launch)
        transcript(job, "ResNet-18, " + launch, {"w": "conv1.weight", "act": "layer4/1/conv2"})


def test_watch_cost():
    """Steps a second with nobody attached, and with three observers that watch."""
    job = resnet("cost", "--log-every", "1000000")

    def rate(seconds):
        first, began = steps_of_ranks()[0][0], time.time()
        time.sleep(seconds)
        return (steps_of_ranks()[0][0] - first) / (time.time() - began)

    rate(5)
    rates = {False: [], True: []}
    for _ in range(6):
        rates[False].append(rate(5))
        clients = [Terminal("attach") for _ in range(3)]
        for c in clients:
            c.expect("run> ")
            c.send(".watch layer4/1/conv2 every 10 limit 100000\n")
            c.expect("watching")
        rates[True].append(rate(5))
        for c in clients:
            c.send("\x04")
            c.end()
    quiet, watched = sorted(rates[False])[3], sorted(rates[True])[3]
    print("steps/s: %.1f alone, %.1f with three observers: %.2f %% of a step" %
          (quiet, watched, 100 * (quiet / watched - 1)))
    job.kill()


TESTS = [test_transcript_native, test_transcript_mpi, test_pauses, test_breaks_and_leases, test_signal_while_paused,
         test_stop_while_paused, test_diagnosis, test_nan, test_layouts, test_lua_of_a_rank, test_gradients,
         test_two_hosts]
MANUAL = [test_hundred_pauses, test_resnet, test_watch_cost]
CHOSEN = [t for t in MANUAL if sys.argv[2:] == [t.__name__[len("test_"):]]]
sys.exit(main(CHOSEN or TESTS))
