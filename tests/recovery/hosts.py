"""Two hosts on one machine: two network namespaces with a link between them. For root."""

import os
import subprocess
import sys

NET = "10.78.1."
PROXY_PORT = 9978
HERE = os.path.dirname(os.path.abspath(__file__))


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


class Hosts:
    """Two network namespaces."""

    def __init__(self):
        self.names = [f"mslua-{end}-{os.getpid()}" for end in "ab"]
        self.links = [f"v{end}{os.getpid()}" for end in "ab"]
        if ip("netns", "add", self.names[0]).returncode:
            print("no right to make network namespaces: two hosts are not tested")
            sys.exit(0)
        self.made = [self.names[0]]
        self.must("netns", "add", self.names[1])
        self.made.append(self.names[1])
        self.must("link", "add", self.links[0], "netns", self.names[0], "type", "veth", "peer", "name", self.links[1],
                  "netns", self.names[1])
        for i, name in enumerate(self.names):
            self.must("-n", name, "addr", "add", f"{NET}{i + 1}/24", "dev", self.links[i])
            self.must("-n", name, "link", "set", "lo", "up")
        self.up()

    def must(self, *words):
        done = ip(*words)
        if done.returncode:
            sys.exit(f"ip {' '.join(words)}: {done.stderr}")

    def set(self, i, state):
        self.must("-n", self.names[i], "link", "set", self.links[i], state)

    def up(self):
        self.shape(None)
        for i in (0, 1):
            self.set(i, "up")

    def down(self):
        self.set(0, "down")

    def shape(self, what):
        """What `tc` does with all that both ends send, or None."""
        for i in (0, 1):
            tc = ["ip", "netns", "exec", self.names[i], "tc", "qdisc"]
            subprocess.run(tc + ["del", "dev", self.links[i], "root"], capture_output=True)
            if what:
                subprocess.run(tc + ["add", "dev", self.links[i], "root"] + what.split(), check=True)

    def lose(self, ends, lost):
        """What these ends send goes to a card that is not there, or to the other end again."""
        for i in ends:
            neighbour = ["-n", self.names[i], "neigh"]
            other = f"{NET}{2 - i}"
            if lost:
                self.must(*neighbour, "replace", other, "lladdr", "02:00:00:00:00:99", "dev", self.links[i], "nud",
                          "permanent")
            else:
                self.must(*neighbour, "del", other, "dev", self.links[i])

    def reset(self):
        """Closes each connection between the hosts; gives how many."""
        done = subprocess.run(["ip", "netns", "exec", self.names[0], "ss", "-K", "-tnH", "dst", NET + "2"],
                              capture_output=True, text=True)
        return len(done.stdout.splitlines())

    def damage(self):
        """A process that carries all connections between the hosts (damaging_proxy.py)."""
        command = ["ip", "netns", "exec", self.names[1], sys.executable, os.path.join(HERE, "damaging_proxy.py"),
                   str(PROXY_PORT), NET + "1"]
        proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        if proxy.stdout.readline() != b"ready\n":
            sys.exit("the proxy does not start")
        return proxy

    def remove(self):
        for name in self.made:
            ip("netns", "del", name)
