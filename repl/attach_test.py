#!/usr/bin/env python3
"""Attaching to a running job, through the program: commands, locks, leases, equal bits, a terminal, floods.

usage: attach_test.py PROGRAM [--device LIBRARY] [NAME]
"""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time

from attach_harness import (DEVICE, ENV, LIMIT, PROGRAM, ROOT, Job, RawClient, Terminal, attach, attach_arguments,
                            attach_json, check, comes, main, make_file, measured, run, step_now)


def test_commands():
    job = Job("a", "steps=1000000", "nap=0.002")
    listed = [json.loads(line) for line in run("ps", "--json").stdout.splitlines()]
    check("ps lists the job", len(listed) == 1 and listed[0]["name"] == "walk", listed)
    comes(lambda: step_now() > 3)
    text, code = attach(".ranks", ".params", ".plan", ".mem", ".graph matmul", ".tail 3", ".plot", ".layout w2",
                        ".who", ".help", rw=False)
    check("snapshots answer", code == 0 and "w2" in text and "nodes in" in text and "writer lock" in text, text)
    text, code = attach(".pause", rw=False)
    check("an observer cannot pause", code == 2 and "take the writer lock" in text, text)
    for more in ([], ["--json"]):
        text, code = attach(".pause", ".set lr=no", ".resume", more=more)
        check("after a failure behind .pause the job stays paused, which is said",
              code == 2 and re.search("the job is paused, and stays so: mslua attach \\w+ --rw -e .resume", text), text)
        check("it resumes", attach(".resume")[1] == 0)
    text, code = attach(".puase")
    check("a wrong command is corrected", code == 2 and "did you mean 'pause'" in text, text)
    text, code = attach("20 + 1", "?ops.relu", "ms.run.status().phase", ".timer on", ".mode json", ".status",
                        ".output answers.txt", ".status", ".output", " .tail 1", ".help", ".detach", ".nothing",
                        rw=False)
    with open(os.path.join(ROOT, "answers.txt"), encoding="utf-8") as answers:
        written = json.load(answers)
    check("-e takes what the prompt takes", code == 0 and text.startswith("21\n") and "relu" in text and
          text.count('"phase"') == 1 and "phase" in written and ".detach" in text, text)
    text, code = attach("error 'not here'", ".status", rw=False)
    check("Lua that fails is the last",
          code == 2 and "mslua: error: not here" in text and " run" not in text, text)
    for line in ("20 + 1", ".mode csv", ".quit"):
        text, code = attach(line, rw=False, more=["--json"])
        check("--json takes commands of the job", code == 2 and
              "--json takes commands of the job, got -e '%s'" % line in text, text)
    answers = attach_json(".pause", ".status", ".step 3", ".stat w", ".set lr=0.5", ".step", ".resume")
    steps = [a["answer"].get("step") for a in answers if isinstance(a["answer"], dict) and "step" in a["answer"]]
    check("pause, step, resume", len(answers) == 7 and all(a["ok"] for a in answers), answers)
    check("steps are exact", steps[1] == steps[0] and steps[2] == steps[0] + 3, answers)
    answers = attach_json(*[".pause", ".resume", ".status"] * 20)
    phases = {a["answer"]["phase"] for a in answers[2::3]}
    check("a job that runs is not paused", len(answers) == 60 and "paused" not in phases, answers[-3:])
    answers = attach_json(".stat Net/matmul", ".grad w2", ".stat w2", ".dump w2", rw=False)
    check("activations, gradients, parameters", all(a["ok"] for a in answers), answers)
    text, code = attach(".grad moments.w2", rw=False)
    check("a state has no gradient", code == 2 and "moments.w2 is an optimizer's state of w2, which has no gradient; "
          "that of the parameter: .grad w2" in text, text)
    check("a dump has all elements", len(answers[3]["answer"]["values"]) == 64, answers[3])
    text, code = attach(".unwatch w2", rw=False)
    check("a watch that is not there", code == 2 and "you do not watch w2" in text, text)
    text, _ = attach(".watch Net/matmul every 2 limit 3", ".stat w", ".grad w", ".grad w2", ".watches")
    check("a watch is accepted", "watching Net/matmul" in text and "every 2" in text, text)
    text, code = attach(".save mine", ".dump w mine.safetensors")
    check("save and dump write files", code == 0 and os.path.exists(job.folder + "/dumps/mine.safetensors"), text)
    saved = re.search(r"saved (\S+)", text)
    shown = run("ckpt", "verify", saved.group(1) if saved else "none")
    check("the checkpoint verifies", shown.returncode == 0, text + shown.stderr)
    recorded = job.events()
    check("interventions are recorded", ".set lr=0.5" in recorded and ".pause" in recorded, recorded)
    done = run("stop")
    _, err, code = job.end()
    check("stop saves and ends with 75", done.returncode == 0 and code == 75 and "saved" in err, (done, err, code))
    check("the endpoint is gone", run("ps", "--json").stdout == "" and not os.path.exists(job.folder + "/attach"))


def test_stop_now():
    """A stop that saves nothing does not name an older checkpoint as its own."""
    job = Job("now", "steps=1000000", "nap=0.002")
    comes(lambda: step_now() > 3)
    text, code = attach(".pause", ".save", ".step 2")
    check("a checkpoint and two steps more", code == 0, text)
    done = run("stop", "--now")
    _, err, _ = job.end()
    said = re.search(r"stopped at step (\d+) without a checkpoint of it; the newest is \S+_(\d+)\.ckpt", err)
    check("stop --now names the newest checkpoint", done.returncode == 0 and said
          and int(said.group(1)) == int(said.group(2)) + 2, (done, text, err))


def test_the_end():
    """A command that waits for a step that never comes is answered when training ends, which it does as ever."""
    for i in range(4):
        job = Job("end%d" % i, "steps=400", "nap=0.1", "nap_until=ending%d" % i)
        steps = subprocess.Popen([PROGRAM, *attach_arguments(".pause", ".step 100000")], env=ENV, cwd=ROOT,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check("the command is recorded", comes(lambda: ".step 100000" in job.events()))
        make_file("ending%d" % i)
        _, err, status = job.end()
        text, code = steps.communicate(timeout=LIMIT)[0], steps.returncode
        check("a command that training's end overtakes", code == 2 and "training has ended" in text and status == 0,
              (text, code, err[-300:], status))


def test_equal_bits():
    quiet = Job("quiet", "steps=300", "--no-attach").end()
    job = Job("loud", "steps=300", "nap=0.02", "nap_until=paused")
    pauses = 0
    try:
        while job.process.poll() is None and pauses < 6:
            text, code = attach(".pause", ".stat Net/matmul", ".watch %7", ".grad w", ".step 2", ".resume")
            pauses += code == 0
    except subprocess.TimeoutExpired:
        check("pauses end", False)
    make_file("paused")
    loud = job.end()
    check("pauses and watches leave the losses bit for bit", pauses >= 1 and quiet[0] == loud[0] and quiet[0] != "",
          (pauses, quiet[0][-300:], loud[0][-300:], loud[1]))


TYPES = """
local ms = require "mslua"
local Net = ms.nn.Cell:extend "Net"
local function fixed(name, values, dtype) return ms.Parameter(ms.Tensor(values, dtype), name, false) end
function Net:init()
  self.w = ms.Parameter(ms.initializer("normal", { 8, 4 }), "w")
  self.h = fixed("h", { 1.5, 0 / 0, 1 / 0, -1 / 0 }, ms.float16)
  self.i = fixed("i", { 2147483647, -2147483648 }, ms.int32)
  self.l = fixed("l", { 9007199254740991, -3 }, ms.int64)
  self.d = fixed("d", { 0.1, 2 }, ms.float64)
  self.n = fixed("n", { 0 / 0, 0 / 0 })
end
function Net:construct(x) return ms.ops.matmul(x, self.w) end
return ms.recipe {
  name = "types", seed = 1,
  dataset = ms.dataset.NumpySlicesDataset({ ms.randn { 64, 8 }, ms.randn { 64, 4 } }):batch(4),
  network = function() return Net() end, loss = ms.nn.MSELoss(),
  optimizer = ms.nn.Momentum { learning_rate = 0.01, momentum = 0.9 }, train = { epochs = 100000000 },
  checkpoint = { save_checkpoint_steps = 100000000 },
}
"""


def test_dumps():
    """Values are written so that they can be read back, also those that JSON does not have."""
    with open(os.path.join(ROOT, "types.lua"), "w", encoding="utf-8") as out:
        out.write(TYPES)
    job = Job("types", recipe="types.lua")
    text, code = attach(".dump h", ".dump i", ".dump l", ".dump d", ".stat n", rw=False)
    lines = text.splitlines()
    check("values as text", code == 0 and lines[:8] == [
        "h f16[4]", "1.5,nan,inf,-inf", "i i32[2]", "2147483647,-2147483648", "l i64[2]", "9007199254740991,-3",
        "d f64[2]", "0.10000000000000001,2"], text)
    check("statistics without a number", lines[8].startswith("n f32[2]  mean nan  std nan  min nan  max nan"), text)
    answers = [a["answer"] for a in attach_json(".dump h", ".dump i", ".dump l", ".dump d", ".stat n", rw=False)]
    check("values as JSON", [a["values"] for a in answers[:4]] == [
        [1.5, None, None, None], [2147483647, -2147483648], [9007199254740991, -3], [0.1, 2]], answers)
    check("statistics as JSON", answers[4]["stat"]["mean"] is None and answers[4]["stat"]["nan"] == 2, answers[4])
    text, code = attach("local v = ms.run.dump('h').values return #v, v[1], v[2] ~= v[2]", ".mode csv", ".dump h",
                        rw=False)
    check("values in Lua and as a table", code == 0 and text.startswith("4\t1.5\ttrue\n") and "1.5,null" in text, text)
    text, code = attach(".dump w w.safetensors", rw=False)
    check("a dump is in the run folder", code == 0 and os.path.exists(job.folder + "/dumps/w.safetensors"), text)
    text, code = attach(".dump w ../w.safetensors", rw=False)
    check("a dump stays in its folder", code == 2 and "expected a file in dumps/ of the run folder" in text
          and not os.path.exists(job.folder + "/w.safetensors"), text)
    job.kill()
    gone = run("runs", "rm", "types")
    check("a run is removed with its dumps", gone.returncode == 0, gone)


def test_leaving():
    """Who has paused the job and leaves, lets it continue, also after .ro."""
    job = Job("leave", "steps=1000000", "nap=0.002")
    client = Terminal("attach", "--rw")
    client.send(".pause\n")
    ok = client.expect(r"paused at step \d+")
    client.send(".ro\n")
    ok = client.expect("the job stays paused: .rw and .resume continue it") and client.expect("PAUSED> ") and ok
    client.send("\x04")
    ok = client.expect("detached; training continues") and ok
    client.end()
    before = step_now()
    check("a job continues when who paused it leaves", ok and comes(lambda: step_now() > before))
    piped = subprocess.Popen([PROGRAM, "attach"], env=ENV, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    piped.stdin.write(".status\n")
    piped.stdin.flush()
    piped.stdout.readline()
    piped.stdout.readline()
    job.kill()
    check("a client says that the job has ended", "mslua: the job has ended" in piped.stderr.read())
    piped.stdin.close()
    piped.wait()


def test_lease():
    job = Job("lease", "steps=1000000", "nap=0.002")
    client = Terminal("attach", "--rw")
    client.send(".pause\n")
    client.expect("paused at step")
    os.kill(client.pid, signal.SIGKILL)
    os.waitpid(client.pid, 0)
    before = step_now()
    check("a dead client's pause ends", comes(lambda: step_now() > before))
    client = Terminal("attach", "--rw")
    client.send(".pause\n")
    client.expect("paused at step")
    client.send(".step 300\n")
    before = step_now()
    comes(lambda: step_now() > before)
    os.kill(client.pid, signal.SIGKILL)
    os.waitpid(client.pid, 0)
    check("a dead client's steps end without a pause", comes(lambda: step_now() > before + 600))
    job.kill()


def test_transcript():
    job = Job("t", "steps=1000000", "nap=0.002")
    t = Terminal("attach")
    ok = t.expect(r"attached to [0-9a-f]{6} walk \(1 rank, started .*observer")
    ok = ok and t.expect(r"e\d+:s\d+ run> ")
    for line, answer in ((".ranks", r"rank +host +pid"), (".pause", "take the writer lock first"),
                         (".rw", "writer lock taken"), (".pause", r"paused at step \d+ on 1/1 ranks"),
                         (".step 2", r"paused at step \d+"), (".stat w", r"w f32\[32,16\]  mean"),
                         (".set lr=0.005", r"lr 0.01 -> 0.005"), (".resume", "resumed at step"),
                         (".watch w2 every 5 limit 2", r"s\d+  w2  mean"), ("1 + 1", r"\n2"),
                         ("ms.run.stat('w').stat.elements", r"\n512"), (".pl\t", "plan"), ("\x15.plan", "nodes in")):
        t.send(line + ("" if line.endswith("\t") else "\n"))
        ok = t.expect(answer) and ok
    t.send("print('be' .. 'gun') while true do end\n")
    ok = t.expect("begun") and ok
    t.send("\x03")
    ok = t.expect("interrupted") and t.expect(r"run!?> ") and ok
    t.send("\x04")
    ok = t.expect("detached; training continues") and ok
    t.end()
    check("a session on a terminal", ok)
    job.kill()


def test_diagnosis():
    job = Job("d", "steps=1000000", "nap=1")

    def names_the_dataset():
        start = time.time()
        done = run("diag", "--json")
        measured("diag of a rank asleep in its dataset", time.time() - start)
        answer = json.loads(done.stdout.splitlines()[0])["answer"] if done.stdout else {}
        return answer.get("phase") == "data" and "recipe.lua:" in answer.get("lua", "")

    check("diag names the sleeping dataset", comes(names_the_dataset))
    text, _ = attach(".stack", rw=False)
    check("the native stack is shown", "native" in text and len(text.splitlines()) > 3, text)
    job.kill()


def test_hung_device():
    """What answers at once does not ask the device, which never answers."""
    job = Job("h", "steps=1000000", env={"EMULATED_DEVICE_HANG": "50"})
    check("the job hangs", comes(lambda: step_now() >= 45))
    before = step_now()
    check("it stays where it is", not comes(lambda: step_now() != before, 1))
    start = time.time()
    answer = attach_json(".diag", rw=False)[0]["answer"]
    measured("diag while a launch never ends", time.time() - start)
    check("diag says that it computes", answer["phase"] == "compute" and answer["step"] >= 45, answer)
    text, code = attach(".diag", ".status", ".ranks", ".mem", ".params", ".graph matmul", ".tail 3", ".stack", rw=False)
    check("so do the others", code == 0 and "computes after step" in text and "native" in text, text)
    job.kill()


def test_lua_at_the_rank():
    job = Job("l", "steps=1000000", "nap=0.002")
    if "ASAN_OPTIONS" not in os.environ:  # AddressSanitizer takes more addresses than the process may have
        text, code = attach("@all 1 + 1", "@0 ms.ones{2}", "@all ms.run.stat('w2').stat.elements",
                            "@0 print('a') return 2")
        check("Lua runs at the rank", code == 0 and "[0] 2" in text and "f32[2]" in text and "[0] 64" in text, text)
        text, code = attach("@all string.rep('x', 1e5)")
        check("what is left out is said", code == 0 and "more output than 48 KiB: the rest is left out" in text,
              text[-99:])
    text, code = attach("@all 1", rw=False)
    check("Lua at a rank needs the writer lock", code == 2 and "writer lock" in text, text)
    text, code = attach("@3 1")
    check("there is no rank 3", code == 2 and "ranks 0 to 0" in text, text)
    text, code = attach("@all io, os.execute, pcall(require, 'ffi')")
    check("files and processes are out of reach", "nil" in text and "true" not in text, text)
    text, _ = attach('@all string.rep("x", 1e10):rep(1e3)')
    check("no string fills the memory", len(text) < 100000, text[-300:])
    bombs = ("while true do end", "while true do print(1) end",
             'local s = string.rep("a", 5e4) return s:find(string.rep("a?", 3e4) .. string.rep("a", 5e4))',
             "local t = {} while true do t[#t + 1] = string.rep('x', 1e6) .. #t end")
    for bomb in bombs:
        before, start = step_now(), time.time()
        text, code = attach("@all " + bomb)
        took = time.time() - start
        check("ended: " + bomb[:40], code == 2 and "[0] " in text, text[-300:])
        measured("to the end of " + bomb[:40], took)
        check("training continued", comes(lambda: step_now() > before))
    text, code = attach("@all 2 + 2")
    check("Lua runs again after them", "[0] 4" in text, text)
    job.kill()


def test_intruders():
    job = Job("i", "steps=1000000", "nap=0.002")
    folder = job.sockets()
    for path, mode in ((folder, 0o700), (folder + "/token", 0o600), (folder + "/rank_0.sock", 0o600)):
        check("mode of " + os.path.basename(path), os.stat(path).st_mode & 0o777 == mode)
    descriptors = len(os.listdir("/proc/%d/fd" % job.process.pid))
    crowd, refused = [], 0
    for i in range(60):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(5)
        s.connect(folder + "/rank_0.sock")
        refused += b"too many connections" in s.recv(65536)
        try:
            if i >= 30:
                s.send(os.urandom(1 + i * 37 % 3000))
        except BrokenPipeError:  # refused, and closed
            pass
        crowd.append(s)
    check("a crowd is refused", refused > 0, refused)
    for s in crowd:
        s.close()
    token = folder + "/token"
    with open(token, encoding="ascii") as f:
        true_token = f.read()
    with open(token, "w", encoding="ascii") as f:
        f.write("0" * 64)
    text, code = attach(".ranks")
    check("a wrong token is refused", code == 4 and "refused" in text, (text, code))
    with open(token, "w", encoding="ascii") as f:
        f.write(true_token)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    clients, told, served = [], 0, 0
    for _ in range(1000):
        clients.append(RawClient(folder + "/rank_0.sock"))
        answer = clients[-1].prove(true_token)
        served += "job" in answer
        told += "32 clients and no more" in answer.get("why", "")
    check("32 of 1000 clients are served, the others told", served == 32 and told == 968, (served, told))
    before = len(os.listdir("/proc/%d/fd" % job.process.pid))
    check("descriptors are held for those who are served", before <= descriptors + 32 + 16, (descriptors, before))
    clients[0].send(RawClient.COMMAND, id="1", line=".status")
    check("every client that is served is answered", "run" in clients[0].receive().get("text", ""))
    for c in clients:
        c.socket.close()
    check("descriptors are back", comes(lambda: len(os.listdir("/proc/%d/fd" % job.process.pid)) <= descriptors),
          (descriptors, len(os.listdir("/proc/%d/fd" % job.process.pid))))
    text, code = attach(".status", rw=False)
    check("the job still answers", code == 0 and "run" in text, text)
    job.kill()


def test_recovery():
    """A client of a job that starts again comes back by itself, with its lock, watches and breaks."""
    job = Job("again", "steps=1000000", "nap=0.002", "--recover")
    terminal = Terminal("attach", "last", "--rw")
    terminal.expect("you steer")
    terminal.expect("run!> ")
    terminal.send(".break step 100000000\n")
    terminal.expect("pauses at: step 100000000")
    terminal.send(".watch w every 1000000 limit 3\n")
    terminal.expect("watching w")
    with open("/proc/%d/task/%d/children" % (job.process.pid, job.process.pid), encoding="ascii") as f:
        os.kill(int(f.read().split()[0]), signal.SIGSEGV)
    terminal.expect(r"the job has started again \(job epoch 2\): attached to \w+ again")
    terminal.expect("watching w")
    terminal.send(".watches\n")
    terminal.expect("break step 100000000")
    terminal.send(".status\n")
    terminal.expect("run, job epoch 2")
    terminal.send(".set lr 0.5\n")
    terminal.expect("lr")
    text = run("ps").stdout
    check("ps shows the job epoch", "job epoch 2" in text, text)
    text, code = attach(".ranks", rw=False)
    check(".ranks shows the job epoch", code == 0 and "job epoch" in text, text)
    terminal.send(".stop\n")
    terminal.expect("ended|stop")
    terminal.end()
    job.kill()


def test_changes_are_kept():
    """A change that was answered is there after a recovery and after --resume, also one for a later step."""
    job = Job("kept", "steps=1000000", "nap=0.002", "--recover")
    comes(lambda: step_now() > 3)
    text, code = attach(".pause", ".set lr=0.5", ".set lr=0.25 at 900000", ".set lr=schedule at 950000")
    check("a rate for a later step", code == 0 and "scheduled at step 900000: lr -> 0.25" in text, text)
    with open("/proc/%d/task/%d/children" % (job.process.pid, job.process.pid), encoding="ascii") as f:
        os.kill(int(f.read().split()[0]), signal.SIGKILL)
    check("the job starts again", comes(lambda: "job epoch 2" in run("ps").stdout and attach(rw=False)[1] == 0))
    check("it continues", comes(lambda: step_now() > 3))
    begin = step_now()
    check("it makes steps", comes(lambda: step_now() > begin))
    text, code = attach(".watches", ".set lr=0.125 at %d" % (step_now() + 100000000), ".set lr=1")
    check("later changes are kept", "waits: .set lr=0.25 at 900000\nwaits: .set lr=schedule at 950000" in text, text)
    check("what was changed is kept", code == 0 and "lr 0.5 -> 1" in text, text)
    check("stop", run("stop").returncode == 0)
    job.end()
    job = Job("kept", "steps=1000000", "nap=0.002", "--resume")
    comes(lambda: step_now() > 3)
    text, code = attach(".watches", ".set lr=2")
    check("a run that resumes keeps what was scheduled", "waits: .set lr=0.25 at 900000" in text, text)
    check("and what was changed", code == 0 and "lr 1 -> 2" in text, text)
    job.kill()


def test_a_change_at_its_step():
    """A rate that is set for a step has effect in the step after it."""
    job = Job("at", "steps=1000000", "nap=0.002")
    comes(lambda: step_now() > 3)
    text, _ = attach(".pause", ".status")
    at = int(re.search(r"paused at step (\d+)", text).group(1)) + 3
    text, code = attach(".set lr=0.5 at %d" % at, ".step 4", ".set lr=0.01", ".set lr=0.25 at %d" % (at + 4), ".step 3",
                        ".set lr=0.125", ".resume")
    said, _ = attach(".pause", ".set lr=0.5", ".set lr=0.25", ".set lr=0.125 at 900000", ".set lr=schedule", ".watches",
                     ".set lr=2", ".set lr=schedule", ".resume")
    check("what is set while the job is paused", re.findall(r"lr (\S+) -> (\S+)", said) ==
          [("0.125", "0.5"), ("0.5", "0.25"), ("0.25", "schedule;"), ("0.01", "2"), ("2", "schedule")], said)
    check("a change to come is taken back", "1 later change dropped" in said and "nothing is watched" in said, said)
    past = attach(".break step %d" % at, ".set lr=0.5 at %d" % (at + 1))
    check("a step that is done", past[1] == 2 and re.search(
        r"\.break step %d: expected a step that is to come, but \d+ steps are done" % at, past[0]), past)
    check("the rate of each step", code == 0 and re.findall(r"lr (\S+) -> 0\.[01]", text) == ["0.5", "0.01"], text)
    job.kill()


def test_another_user():
    """Who is not the job's user is cut off before a word, also where modes would let him in."""
    if os.geteuid() != 0:
        print("not run: only root can be another user", flush=True)
        return
    job = Job("u", "steps=1000000", "nap=0.002")
    folder = job.sockets()
    with open(folder + "/token", encoding="ascii") as f:
        token = f.read()
    folders = (ROOT, os.path.dirname(folder), folder)
    for path in folders:
        os.chmod(path, 0o755)
    os.chmod(folder + "/rank_0.sock", 0o666)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            status = 0 if RawClient(folder + "/rank_0.sock").prove(token) == {} else 2
        except OSError:
            status = 0
        os._exit(status)
    check("another user is cut off", os.waitpid(child, 0)[1] == 0)
    for path in folders:
        os.chmod(path, 0o700)
    text, code = attach(".status", rw=False)
    check("and the job continues", code == 0 and "run" in text, text)
    job.kill()


ON_A_DEVICE = [test_commands, test_the_end, test_equal_bits, test_lease, test_transcript, test_diagnosis,
               test_hung_device, test_recovery]
ON_THE_CPU = [f for name, f in list(globals().items()) if name.startswith("test_") and f != test_hung_device]
sys.exit(main(ON_A_DEVICE if DEVICE else ON_THE_CPU))
