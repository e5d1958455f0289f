"""Prints `N passed, N failed` for one `bazel test`, from what Bazel recorded of it.

usage: count_tests.py EVENTS.json BAZEL_STATUS LINT_STATUS

EVENTS.json is the run's --build_event_json_file. Each GoogleTest case in a test's XML counts once, skipped and
disabled ones not at all. A test target without a readable result (it did not build, crashed, or ran out of time)
counts as one failed, so does a build that failed elsewhere, and so does tools/lint. Exit status 0 when something
passed and nothing failed.
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


def read_events(path):
    """Yields the events; a file cut off by a crash ends early."""
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)
    except (OSError, ValueError):
        return


def count_cases(xml_path):
    """(passed, names of failed cases) of one test.xml."""
    passed, failed = 0, []
    for case in ElementTree.parse(xml_path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname', '')}.{case.get('name')}".lstrip("."))
        elif case.get("result", "completed") == "completed" and case.get("status", "run") == "run":
            passed += 1
    return passed, failed


def main(events_path, bazel_status, lint_status):
    tests, results = set(), {}
    for event in read_events(events_path):
        key = event.get("id", {})
        configured = event.get("configured", {})
        if "targetConfigured" in key and configured.get("targetKind", "").endswith("_test rule"):
            tests.add(key["targetConfigured"]["label"])
        elif "testResult" in key and "testResult" in event:
            run = key["testResult"]
            # A later attempt of the same run and shard replaces an earlier one.
            results.setdefault(run["label"], {})[(run.get("run"), run.get("shard"))] = event["testResult"]

    passed, failed = 0, []
    for label in sorted(tests | set(results)):
        runs = results.get(label, {})
        if not runs:
            failed.append(f"{label}: did not build or run")
        for result in runs.values():
            xml = next((o["uri"] for o in result.get("testActionOutput", []) if o["name"] == "test.xml"), "")
            try:
                ok, bad = count_cases(urllib.parse.unquote(urllib.parse.urlparse(xml).path))
            except (OSError, ElementTree.ParseError):
                ok, bad = 0, []
            passed += ok
            failed += [f"{label}: {name}" for name in bad]
            if result.get("status") != "PASSED" and not bad:
                failed.append(f"{label}: {result.get('status', 'no status').lower()}")
            elif result.get("status") == "PASSED" and not ok and not bad:
                print(f"note: {label} passed without running a test case", file=sys.stderr)
    if bazel_status != 0 and not failed:
        failed.append(f"bazel test ended with status {bazel_status}")
    if lint_status != 0:
        failed.append("tools/lint")

    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    if passed == 0 and not failed:
        print("no test ran", file=sys.stderr)
    sys.stderr.flush()
    print(f"{passed} passed, {len(failed)} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
