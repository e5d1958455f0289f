#!/usr/bin/env python3
"""Runs the examples of a documentation page, in order, and compares what they print.

usage: run_page.py PROGRAM PAGE RECIPES_FOLDER [--show]

Three kinds of fenced blocks are executed, all in one new folder that holds a copy of the recipes and of the
recipe `circle.lua` of the README:

  ```lua FILE.lua     the block is written to FILE.lua
  ```console          lines that begin with `$ ` are run by bash, with `mslua` and `./mslua` as PROGRAM; the others are
                      the expected output
  ```repl [ARGS]      lines that begin with `> ` are the input of `mslua repl ARGS`; the others are its expected output

Each expected line must occur in the output, in order; numbers, identifiers of runs, spaces and the plural of "thread"
(machines have different numbers of cores) do not count, and `...` stands for any text. A command that exits with a
status other than 0 fails, unless its line ends in `# exit N`. Blocks of other kinds (`sh`, `text`, `lua` without a
file) are not executed. --show prints the output of each command.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

TIME_LIMIT = 600  # seconds for one command
FENCE = re.compile(r"^```(\S*)\s*(.*)$")
EXIT = re.compile(r"#\s*exit (\d+)\s*$")


def blocks(path):
    """Yields (first line number, kind, argument, lines) of each fenced block."""
    kind, argument, start, body = None, "", 0, []
    with open(path, encoding="utf-8") as page:
        for number, line in enumerate(page, 1):
            line = line.rstrip("\n")
            fence = FENCE.match(line.strip())
            if kind is None and fence:
                kind, argument, start, body = fence.group(1), fence.group(2), number + 1, []
            elif kind is not None and fence:
                yield start, kind, argument, body
                kind = None
            elif kind is not None:
                body.append(line)
    if kind is not None:
        sys.exit(f"{path}:{start}: the block has no end")


def pattern_of(line):
    """A regular expression for an expected line: numbers match numbers, `...` matches anything."""
    parts = [re.escape(part) for part in re.sub(r"\s+", " ", line.strip()).split("...")]
    text = ".*".join(parts)
    text = re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "[0-9a-f]+", text)
    text = re.sub(r"\bthreads?\b", "threads?", text)
    return re.compile(text.replace(r"\ ", " "))


def missing_line(expected, output):
    """The first expected line that the output lacks, in order; None when all are there."""
    got = [re.sub(r"\s+", " ", line.strip()) for line in output.splitlines()]
    position = 0
    for line in expected:
        if line.strip() in ("", "..."):
            continue
        pattern = pattern_of(line)
        while position < len(got) and not pattern.search(got[position]):
            position += 1
        if position == len(got):
            return line
        position += 1
    return None


class Page:
    def __init__(self, program, path, recipes, show):
        self.path, self.show, self.failures, self.sessions = path, show, 0, []
        self.folder = tempfile.mkdtemp(prefix="page.", dir=os.environ.get("TEST_TMPDIR"))
        shutil.copytree(recipes, os.path.join(self.folder, "recipes"))
        shutil.copy(os.path.join(recipes, "examples/circle.lua"), self.folder)
        programs = os.path.join(self.folder, ".programs")
        os.mkdir(programs)
        for link in (os.path.join(programs, "mslua"), os.path.join(self.folder, "mslua")):
            os.symlink(os.path.abspath(program), link)
        self.runtime = tempfile.mkdtemp(prefix="r.", dir="/tmp")  # a path of a socket is short
        self.environment = dict(os.environ, PATH=programs + ":" + os.environ["PATH"], HOME=self.folder,
                                XDG_CACHE_HOME=os.path.join(self.folder, ".cache"), XDG_RUNTIME_DIR=self.runtime,
                                TERM="dumb")

    def fail(self, line, what):
        self.failures += 1
        print(f"{self.path}:{line}: {what}", file=sys.stderr)

    def run(self, command, text=""):
        """(status, output) of a shell command. A background process may keep the output's file open."""
        with tempfile.TemporaryFile(mode="w+", errors="replace") as output, tempfile.TemporaryFile(mode="w+") as source:
            source.write(text)
            source.seek(0)
            job = subprocess.Popen(["bash", "-c", command], cwd=self.folder, env=self.environment, stdin=source,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            self.sessions.append(job.pid)
            try:
                status = job.wait(TIME_LIMIT)
            except subprocess.TimeoutExpired:
                status = f"no end after {TIME_LIMIT} s"
                os.killpg(job.pid, signal.SIGKILL)
            output.seek(0)
            return status, output.read()

    def check(self, line, command, expected, wanted=0, text=""):
        status, output = self.run(command, text)
        if self.show:
            print(f"--- {self.path}:{line}: {command}\n{output}", end="")
        if status != wanted:
            self.fail(line, f"`{command}` ended with {status}, expected {wanted}; it printed:\n{output}")
        missing = missing_line(expected, output)
        if missing is not None:
            self.fail(line, f"`{command}` does not print `{missing.strip()}`; it printed:\n{output}")

    def console(self, start, body):
        commands = []  # (line, command, expected lines)
        for offset, line in enumerate(body):
            if line.startswith("$ "):
                commands.append([start + offset, line[2:], []])
            elif commands and commands[-1][1].endswith("\\"):
                commands[-1][1] = commands[-1][1][:-1] + line.strip()
            elif commands:
                commands[-1][2].append(line)
            elif line.strip():
                self.fail(start + offset, "output before the first command of a block")
        for number, command, expected in commands:
            code = EXIT.search(command)
            self.check(number, command, expected, int(code.group(1)) if code else 0)

    def repl(self, start, arguments, body):
        typed = [line[2:] for line in body if line.startswith("> ")]
        expected = [line for line in body if not line.startswith("> ")]
        self.check(start, f"mslua repl {arguments}", expected, text="\n".join(typed) + "\n")

    def execute(self):
        count = 0
        for start, kind, argument, body in blocks(self.path):
            if kind == "console":
                self.console(start, body)
            elif kind == "repl":
                self.repl(start, argument, body)
            elif kind == "lua" and argument:
                with open(os.path.join(self.folder, argument), "w", encoding="utf-8") as file:
                    file.write("\n".join(body) + "\n")
            else:
                continue
            count += 1
        for session in self.sessions:
            try:
                os.killpg(session, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.runtime, ignore_errors=True)
        print(f"{self.path}: {count} blocks, {self.failures} failures")
        return self.failures


def main():
    arguments = [a for a in sys.argv[1:] if a != "--show"]
    if len(arguments) != 3:
        sys.exit(__doc__)
    sys.exit(1 if Page(*arguments, "--show" in sys.argv).execute() else 0)


if __name__ == "__main__":
    main()
