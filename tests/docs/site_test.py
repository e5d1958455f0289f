#!/usr/bin/env python3
"""The web pages of tools/docs: site_test.py TOOL MSLUA"""
import html
import json
import os
import re
import subprocess
import sys

TOOL, MSLUA = (os.path.abspath(word) for word in sys.argv[1:3])
SITE = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "site")
NAMES = """
local kinds = { class = true, ["function"] = true, operator = true, value = true }
for _, entry in ipairs(require("mslua.help").list()) do
  if kinds[entry.kind] then print(entry.name) end
end
for _, info in ipairs(require("mslua.core").ops()) do
  if rawget(require("mslua").ops, info.name) then print("ops." .. info.name) end
end
"""


def check(condition, what):
    if not condition:
        sys.exit("not met: %s" % (what,))


def read(page):
    with open(os.path.join(SITE, page), encoding="utf-8") as file:
        return file.read()


def check_links(pages):
    anchors = {page: set(re.findall(r'id="([^"]+)"', read(page))) for page in pages}
    for page in pages:
        for address in re.findall(r'(?:href|src)="([^"]+)"', read(page)):
            address = html.unescape(address)
            if re.match(r"[a-z]+:", address):
                continue
            path, _, anchor = address.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            check(os.path.exists(os.path.join(SITE, target)), (page, address))
            check(not anchor or anchor in anchors[target], (page, address))
        check(not re.search(r'src="[a-z]+:|@import|<link[^>]*https?:', read(page)), (page, "asks the network"))


def main():
    made = subprocess.run([sys.executable, TOOL, SITE], capture_output=True, text=True, check=False)
    check(made.returncode == 0, made)
    pages = sorted(os.path.relpath(os.path.join(folder, f), SITE)
                   for folder, _, files in os.walk(SITE) for f in files if f.endswith(".html"))
    check_links(pages)
    script = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "names.lua")
    with open(script, "w", encoding="utf-8") as file:
        file.write(NAMES)
    run = subprocess.run([MSLUA, "run", script], capture_output=True, text=True, check=True)
    names = set(run.stdout.split())
    found = {page[len("names/"):-len(".html")] for page in pages if page.startswith("names/")} - {"index"}
    check(names == found, ("without a page", sorted(names - found), "no public name", sorted(found - names)))
    for name in names:
        body = re.search(r"<main>(.*?)</main>", read("names/%s.html" % name), re.S).group(1)
        code = html.unescape("\n".join(re.findall(r"<pre>(.*?)</pre>", body, re.S)))
        check(all(len(line) <= 110 for line in code.split("\n")), (name, "has a line of code that is too long"))
        check(re.search(r">%s on the page of (all|the module) [^<]+</a></p>$" % re.escape(name), body),
              (name, "has no link to the page of all"))
        check(len(re.sub(r"<pre>.*?</pre>|<[^>]*>", "", body, flags=re.S).split()) > 6, (name, "has no text"))
    index = json.loads(read("pages.js")[len("const PAGES = "):].rstrip(";\n"))
    check(sorted(page for _, page, _ in index) == pages, "the search knows all pages")
    check("momentum" in next(words for title, _, words in index if title == "nn.Momentum"), "words of a page")
    again = subprocess.run([sys.executable, TOOL, os.path.dirname(TOOL)], capture_output=True, text=True, check=False)
    check(again.returncode != 0 and "other files" in again.stderr, again)
    print("%d pages, %d names" % (len(pages), len(names)))


main()
