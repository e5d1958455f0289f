#!/usr/bin/env python3
"""Tests of ./mslua, .bazelrc, tools/build.sh, tools/lint and tools/count_tests.py, on made-up clones."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.path.join(os.environ.get("TEST_SRCDIR", ""), os.environ.get("TEST_WORKSPACE", ""))
if not os.path.isfile(os.path.join(SOURCE, "mslua")):
    SOURCE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "MS_ROLE", "MS_NODE_ID",
                  "RANK_ID", "SLURM_PROCID")


class Clone(unittest.TestCase):
    """A folder that looks like a clone, with the real scripts in it."""

    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        for name in ("mslua", "tools/build.sh", "tools/lint", "tools/bazel/components.bzl", "tools/packages.txt"):
            self.write(name, "")
            shutil.copy(os.path.join(SOURCE, name), os.path.join(self.root, name))

    def write(self, name, text, executable=False):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        if executable:
            os.chmod(path, 0o755)
        return path

    def run_in(self, folder, command, **environment):
        clean = {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}
        clean.update(environment)
        return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)


class Launcher(Clone):
    """./mslua."""

    def setUp(self):
        super().setUp()
        self.source = self.write("core/base/a.cc", "")
        self.write(".build/mslua", '#!/bin/sh\npwd -P\nprintf "[%s]" "$@"\nexit 42\n', executable=True)
        self.stamp = self.write(".build/mslua.stamp", "")
        self.age(self.root, 100)
        os.utime(self.stamp)

    def age(self, folder, seconds):
        """Makes everything below `folder` that old."""
        for path, _, names in os.walk(folder):
            for name in names + ["."]:
                full = os.path.join(path, name)
                os.utime(full, (os.stat(full).st_mtime - seconds,) * 2)

    def test_starts_the_program_with_the_arguments_and_folder_of_the_caller(self):
        done = self.run_in("/usr", [os.path.join(self.root, "mslua"), "a b", "", "*", "x=1"])
        self.assertEqual((done.returncode, done.stdout), (42, "/usr\n[a b][][*][x=1]"), done.stderr)

    def test_works_through_a_symlink(self):
        os.makedirs(os.path.join(self.root, "bin"))
        os.symlink("../mslua", os.path.join(self.root, "bin/m"))
        done = self.run_in("/usr", [os.path.join(self.root, "bin/m"), "x"])
        self.assertEqual((done.returncode, done.stdout), (42, "/usr\n[x]"), done.stderr)

    def test_a_rank_starts_what_is_fresh_and_never_builds(self):
        for variable in RANK_VARIABLES:
            os.utime(self.stamp)
            self.assertEqual(self.run_in(self.root, ["./mslua"], **{variable: "1"}).returncode, 42)
            os.utime(self.stamp, (0, 0))
            done = self.run_in(self.root, ["./mslua"], **{variable: "1"})
            self.assertEqual(done.returncode, 4, variable)
            self.assertIn("never builds; fix: run `./mslua version` once", done.stderr)

    def test_a_source_that_changed_or_went_away_counts(self):
        later = os.stat(self.stamp).st_mtime + 1
        os.utime(self.source, (later, later))
        self.assertIn("older than core/base/a.cc", self.run_in(self.root, ["./mslua"], RANK_ID="0").stderr)
        os.remove(self.source)
        os.utime(os.path.dirname(self.source), (later, later))
        self.assertIn("older than core/base,", self.run_in(self.root, ["./mslua"], RANK_ID="0").stderr)

    def test_without_a_program_a_rank_is_told_so(self):
        os.remove(os.path.join(self.root, ".build/mslua"))
        self.assertIn("not built yet", self.run_in(self.root, ["./mslua"], MS_ROLE="MS_WORKER").stderr)

    def test_every_component_of_the_program_is_watched(self):
        with open(os.path.join(self.root, "mslua"), encoding="utf-8") as script:
            watched = script.read()
        with open(os.path.join(self.root, "tools/bazel/components.bzl"), encoding="utf-8") as table:
            components = set(re.findall(r'^    "([a-z]+)[a-z/_]*": \[', table.read(), re.M))
        self.assertIn("core", components)
        for component in components - {"tools", "tests", "bench"}:
            self.assertIn(f'"$root/{component}"', watched)


class Links(unittest.TestCase):
    """Bazel's links: //... must not go through those of another prefix."""

    def prefixes(self, name):
        with open(os.path.join(SOURCE, name), encoding="utf-8") as text:
            return re.findall(r"--symlink_prefix=(\S+)", text.read())

    def test_no_link_is_where_a_pattern_finds_packages(self):
        with open(os.path.join(SOURCE, ".bazelignore"), encoding="utf-8") as text:
            ignored = text.read().split()
        plain = self.prefixes(".bazelrc")
        self.assertEqual(len(plain), 1)
        self.assertIn(os.path.dirname(plain[0]), ignored)
        self.assertNotIn(plain[0], self.prefixes("tools/build.sh"))

    def test_no_link_can_have_the_name_of_a_file_of_the_build_folder(self):
        # Bazel's last link is the prefix and the name of the clone's folder.
        for name in (".bazelrc", "tools/build.sh", "tools/test", "tools/fuzz/run"):
            for prefix in self.prefixes(name):
                self.assertRegex(prefix, r"^\.build/[a-z]+-$", name)


class OldLinks(Clone):
    """Links that earlier versions left in .build."""

    def test_a_link_in_the_place_of_a_file_is_removed(self):
        os.makedirs(os.path.join(self.root, "elsewhere"))
        for name in ("mslua", "lock", "dev-bin"):
            os.makedirs(os.path.join(self.root, ".build"), exist_ok=True)
            os.symlink(os.path.join(self.root, "elsewhere"), os.path.join(self.root, ".build", name))
        done = self.run_in(self.root, ["sh", "-uc", f'root={self.root}; . "$root/tools/build.sh"; set_cache'])
        self.assertEqual(done.returncode, 0, done.stderr)
        build = os.path.join(self.root, ".build")
        self.assertEqual([name for name in os.listdir(build) if os.path.islink(os.path.join(build, name))], ["dev-bin"])
        # As does ./mslua before it builds: a folder is not the program.
        os.symlink(os.path.join(self.root, "elsewhere"), os.path.join(self.root, ".build/mslua"))
        self.write(".build/mslua.stamp", "")
        self.assertIn("not built yet", self.run_in(self.root, ["./mslua"], RANK_ID="0").stderr)


class Packages(Clone):
    """install_packages of tools/build.sh, with stand-ins for the system's programs."""

    def install(self, uid, installed):
        self.write("tools/packages.txt", "one  # with a comment\n\n# nothing\ntwo\n")
        listing = " ".join(f"installed/{p}" for p in installed)
        self.write("fake/dpkg-query", f"#!/bin/sh\nprintf '%s\\n' {listing}\n", executable=True)
        self.write("fake/id", f"#!/bin/sh\necho {uid}\n", executable=True)
        self.write("fake/sudo", "#!/bin/sh\nexit 1\n", executable=True)
        self.write("fake/apt-get", '#!/bin/sh\necho "apt-get $*" >&2\n', executable=True)
        script = f'root={self.root}; . "$root/tools/build.sh"; install_packages'
        return self.run_in(self.root, ["sh", "-uc", script], PATH=f"{self.root}/fake:{os.environ['PATH']}")

    def test_nothing_to_do(self):
        done = self.install(1000, ["two", "one", "other"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_without_rights_prints_the_one_line(self):
        done = self.install(1000, ["one", "twoo"])
        self.assertEqual(done.returncode, 4)
        self.assertEqual(done.stderr, "mslua: error: packages are missing; fix: sudo apt-get install -y two\n")

    def test_root_installs_what_is_missing(self):
        done = self.install(0, ["one"])
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"apt-get .*install two\n")


class Lint(Clone):
    """tools/lint."""

    def problems(self, name, text):
        path = self.write(name, text) if text is not None else name
        done = self.run_in(self.root, ["tools/lint", path])
        lines = [line for line in done.stderr.splitlines() if not line.startswith(("lint: ", "note: "))]
        self.assertEqual(done.returncode, 1 if lines else 0, done.stderr)
        return lines

    def test_includes(self):
        self.assertEqual(self.problems("core/graph/a.cc", '#include "core/graph/a.h"\n#include "core/op/b.h"\n'
                                       '#include "core/base/c.h"\n#include "absl/x.h"\n#include <vector>\n'), [])
        self.assertEqual(self.problems("core/base/a.cc", '\n#include "core/op/b.h"\n'),
                         ["core/base/a.cc:2: component core/base may not include core/op/b.h of component core/op "
                          "(tools/bazel/components.bzl)"])
        self.assertEqual(len(self.problems("core/autodiff/a.h", '#include "core/ops/define.h"\n')), 1)
        self.assertEqual(len(self.problems("core/runtime/a.h", '#include "lua/tensor.h"\n')), 1)
        self.assertEqual(self.problems("core/autodiff/a_test.cc", '#include "core/ops/define.h"\n'), [])
        self.assertEqual(self.problems("lua/a.cc", '#include "core/checkpoint/a.h"\n#include "core/data/a.h"\n'), [])
        self.assertEqual(self.problems("core/base/b.cc", '#include "core/nowhere/b.h"\n'),
                         ["core/base/b.cc:1: core/nowhere/b.h is in no component of tools/bazel/components.bzl"])
        self.assertEqual(self.problems("core/nowhere/b.h", "int b;\n"),
                         ["core/nowhere/b.h:1: the file is in no component of tools/bazel/components.bzl"])
        self.assertEqual(self.problems("verbs/main.cc", '#include "repl/editor.h"\n'), [])
        self.assertEqual(len(self.problems("lua/a.cc", '#include "repl/editor.h"\n')), 1)

    def test_cycles(self):
        self.write("core/graph/a.h", '#include "core/graph/b.h"\n')
        self.write("core/graph/b.h", "int b;\n")
        self.write("core/graph/c.h", "int c;\n")
        self.write("core/graph/c-inl.h", '#include "core/graph/c.h"\n')
        self.write("core/graph/c.cc", '#include "core/graph/c-inl.h"\n')
        self.write("core/graph/b_test.cc", '#include "core/graph/a.h"\n')
        self.assertEqual(self.problems("core/graph", None), [])
        self.write("core/graph/b.cc", '#include "core/graph/b.h"\n#include "core/graph/a.h"\n')
        self.assertEqual(self.problems("core/graph", None),
                         ["core/graph/b.cc:2: modules include one another: core/graph/a -> core/graph/b -> "
                          "core/graph/a"])

    def test_text(self):
        for text in ("int a;", "int a; \n", "\tint a;\n", "int a;\r\n", "//" + "x" * 119 + "\n", "// TO" + "DO: x\n",
                     "// /home" + "/someone/x\n", "// http://user:secret" + "@host/\n",
                     "-----BEGIN " + "PRIVATE KEY-----\n"):
            self.assertEqual(len(self.problems("core/base/a.h", text)), 1, repr(text))
        self.assertEqual(self.problems("core/base/a.h", "//" + "x" * 118 + "\n"), [])

    def test_words(self):
        mend = "'me" + "nd': say fix"
        for path, text in (("core/base/a.h", "// Says the me" + "nd.\n"), ("lua/a.lua", 'fail("no me' + 'nd here")\n'),
                           ("docs/a.md", "Say the me" + "nd.\n"), ("tests/a.sh", "# the me" + "nd\n")):
            found = self.problems(path, text)
            self.assertTrue(found and all(mend in f for f in found), (path, found))
        for path, text in (("core/base/a.h", "int me" + "nd = 1;  // a repair\n"),
                           ("docs/a.md", "`me" + "nd` is a name\n"),
                           ("tests/a.sh", "x=$(printf 'a,b' | cut -d, -f1)\n"), ("docs/a.md", "Cut" + " off at 10.\n")):
            self.assertEqual(self.problems(path, text), [], path)
        self.assertIn("a citation", self.problems("core/base/a.h", "// Numbers (D" + "7).\n")[0])

    def test_links(self):
        self.write("docs/howto/b.md", "# Two words\n")
        good = "[b](howto/b.md) [two](howto/b.md#two-words) [web](https://example.org/x) `[code](no.md)`\n"
        self.assertEqual(self.problems("docs/a.md", good), [])
        self.assertEqual(self.problems("docs/a.md", "```\n[c](no.md)\n```\n"), [])
        self.assertEqual(self.problems("docs/a.md", "\n[c](no.md)\n"), ["docs/a.md:2: the link leads nowhere: no.md"])
        self.assertEqual(self.problems("docs/a.md", "[b](howto/b.md#three)\n"),
                         ["docs/a.md:1: howto/b.md has no heading #three"])
        self.assertEqual(self.problems("core/base/a.h", "// docs/" + "gone.md says why.\n"),
                         ["core/base/a.h:1: there is no docs/" + "gone.md"])

    def test_listings_are_the_files(self):
        self.write("core/base/a.h", "int a;\n\nint b;\n")
        page = "This is all of `core/base/a.h`:\n\n```cpp\n%s```\n"
        self.assertEqual(self.problems("docs/a.md", page % "int a;\n\nint b;\n"), [])
        self.assertEqual(self.problems("docs/a.md", page % "int a;\n"),
                         ["docs/a.md:1: the block is not what core/base/a.h has: copy the file"])

    def test_sources_that_are_named_exist(self):
        self.write("core/base/a.h", "int a;\n")
        gone = "core/base/" + "gone.h"
        for path, text in (("core/base/b.h", f"// {gone} says why.\n"), ("docs/a.md", f"Look at `{gone}`.\n"),
                           ("lua/a.lua", f"return 1  -- as in {gone}\n"), ("tools/a.py", f'"""As {gone}."""\n')):
            self.assertEqual(self.problems(path, text), [f"{path}:1: there is no {gone}"])
        for path, text in (("docs/a.md", "`core/base/a.h`, `core/base/x.cc`, `core/base/x_test.cc`, `core/base/*.h`\n"),
                           ("core/base/b.h", f'const char* kName = "{gone}";  // beside core/base/a.h\n'),
                           ("docs/a.md", "`elsewhere/gone.h`, `/usr/" + gone + "`\n")):
            self.assertEqual(self.problems(path, text), [], path)

    def test_clocks(self):
        for text in ("absl::Now()", "std::chrono::system_clock::now()", "gettimeofday(&t, nullptr)",
                     "std::time(nullptr)", "time(NULL)", "clock_gettime(CLOCK_REALTIME, &t)",
                      "pthread_cond_timedwait(&c, &m, &t)"):
            self.assertEqual(len(self.problems("launch/a.cc", f"const auto now = {text};\n")), 1, text)
            self.assertEqual(self.problems("core/train/event_file.cc", f"const auto now = {text};\n"), [], text)
        self.assertEqual(self.problems("launch/a.cc", "const auto now = MonotonicNow() + run_time(0);\n"), [])

    def test_scripts(self):
        self.assertEqual(len(self.problems("tools/a.sh", "if then\n")), 1)
        if shutil.which("luajit"):
            self.assertTrue(self.problems("recipes/a.lua", "return {\n"))
        self.assertEqual(self.problems("recipes/a.lua", "return {}\n"), [])


class Counting(unittest.TestCase):
    """tools/count_tests.py."""

    def configured(self, label, kind):
        return {"id": {"targetConfigured": {"label": label}}, "configured": {"targetKind": kind}}

    def count(self, targets, bazel_status=0, lint_status=0):
        """`targets`: {label: (status, text of test.xml or None) or None when it did not run}."""
        with tempfile.TemporaryDirectory() as folder:
            events = [self.configured("//:lib", "cc_library rule")]
            for i, (label, result) in enumerate(targets.items()):
                events.append(self.configured(label, "cc_test rule"))
                if result is None:
                    continue
                xml = os.path.join(folder, f"a b{i}.xml")
                if result[1] is not None:
                    with open(xml, "w", encoding="utf-8") as out:
                        out.write(result[1])
                outputs = [{"name": "test.log", "uri": "file:///x"},
                           {"name": "test.xml", "uri": "file://" + xml.replace(" ", "%20")}]
                events.append({"id": {"testResult": {"label": label, "run": 1, "shard": 1}},
                               "testResult": {"status": result[0], "testActionOutput": outputs}})
            path = os.path.join(folder, "events.json")
            with open(path, "w", encoding="utf-8") as out:
                out.write("".join(json.dumps(event) + "\n" for event in events) + '{"cut')
            script = os.path.join(SOURCE, "tools/count_tests.py")
            done = subprocess.run(["python3", script, path, str(bazel_status), str(lint_status)], capture_output=True,
                                  text=True, check=False)
            return done.stdout, done.returncode

    GOOD = ('<testsuites><testsuite><testcase name="a" status="run" result="completed"/>'
            '<testcase name="b" status="run" result="completed"/>'
            '<testcase name="c" status="notrun" result="suppressed"/>'
            '<testcase name="d" status="run" result="skipped"><skipped/></testcase></testsuite></testsuites>')
    BAD = ('<testsuites><testsuite><testcase name="a" status="run" result="completed"/><testcase name="b" status="run" '
           'result="completed"><failure/><failure/></testcase></testsuite></testsuites>')

    def test_counts_cases(self):
        self.assertEqual(self.count({"//:a": ("PASSED", self.GOOD)}), ("2 passed, 0 failed\n", 0))
        self.assertEqual(self.count({"//:a": ("PASSED", self.GOOD), "//:b": ("FAILED", self.BAD)}, 3),
                         ("3 passed, 1 failed\n", 1))

    def test_what_did_not_run_or_finish_failed(self):
        self.assertEqual(self.count({"//:a": ("PASSED", self.GOOD), "//:b": None}, 1), ("2 passed, 1 failed\n", 1))
        self.assertEqual(self.count({"//:a": ("TIMEOUT", None)}, 3), ("0 passed, 1 failed\n", 1))
        self.assertEqual(self.count({"//:a": ("FAILED", "<cut")}, 3), ("0 passed, 1 failed\n", 1))
        self.assertEqual(self.count({"//:a": ("FAILED", self.GOOD)}, 3), ("2 passed, 1 failed\n", 1))

    def test_a_run_without_tests_or_with_other_failures_fails(self):
        self.assertEqual(self.count({}), ("0 passed, 0 failed\n", 1))
        self.assertEqual(self.count({}, 4), ("0 passed, 1 failed\n", 1))
        self.assertEqual(self.count({"//:a": ("PASSED", self.GOOD)}, 1), ("2 passed, 1 failed\n", 1))
        self.assertEqual(self.count({"//:a": ("PASSED", self.GOOD)}, 0, 1), ("2 passed, 1 failed\n", 1))


if __name__ == "__main__":
    unittest.main()
