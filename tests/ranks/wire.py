"""Records what goes over a network interface, or says what of it can be read.

wire.py record INTERFACE FILE      until it is ended; writes READY to standard output when it has begun
wire.py find FILE                  the secrets that the file holds, one a line
wire.py http HOST:PORT             asks for a page, and prints what comes back
wire.py crowd HOST:PORT[,PORT...] SECONDS [N]
                                   opens connections that send random bytes, cut ClientHellos, or a byte a second,
                                   for SECONDS at least and N at least
wire.py turns HOST:PORT[,PORT...] RATE SECONDS N
                                   prints when it begins; opens RATE such connections a second for SECONDS, then none
                                   for as long, N times
"""
import collections
import os
import random
import select
import signal
import socket
import struct
import sys
import time

SLOW = 1000  # connections of a crowd that send a byte a second, at most
# Of a control message, of its texts, and of the tensor of secret.lua (float32).
SECRETS = {
    "a control message": b"mslc",
    "a name in a control message": b"hash.recipe",
    "a tensor": struct.pack("<f", 12345.678) * 4,
}


def record(interface, path):
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    raw.bind((interface, 0))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    done = []
    signal.signal(signal.SIGTERM, lambda *_: done.append(1))
    print("READY", flush=True)
    with open(path, "wb") as out:
        while not done:
            if select.select([raw], [], [], 0.2)[0]:
                out.write(raw.recv(1 << 16))


def find(path):
    with open(path, "rb") as file:
        data = file.read()
    print(len(data), "bytes")
    for name, secret in SECRETS.items():
        if secret in data:
            print("holds", name)


def http(host, port):
    with socket.create_connection((host, port), 5) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        print(peer.recv(4096))


class Crowd:
    """Connections that nobody has asked for. They are cheap to open: a job may share the processors."""

    def __init__(self, host, ports, slow):
        self.host, self.ports, self.most_slow, self.opened = host, ports, slow, 0
        self.hello = bytes.fromhex("160301007a0100007603") + os.urandom(120)
        self.noise = os.urandom(1 << 16)
        self.slow = collections.deque()  # when it sends, what it has sent

    def open(self):
        try:
            peer = socket.socket()
            peer.settimeout(1)
            peer.connect((self.host, random.choice(self.ports)))
            self.opened += 1
            kind, start = random.randrange(4), random.randrange(len(self.noise) // 2)
            if kind == 0:
                peer.sendall(self.noise[start : start + random.randrange(1, 200)])
            elif kind == 1:
                peer.sendall(self.hello[: random.randrange(1, len(self.hello))])
            elif kind == 2:
                peer.sendall(b"\x16\x03" + self.noise[start : start + random.randrange(1, 600)])
            if kind == 3 and len(self.slow) < self.most_slow:
                self.slow.append((time.time(), 0, peer))
            else:
                peer.close()
        except OSError:
            time.sleep(0.001)

    def send_slowly(self):
        while self.slow and self.slow[0][0] <= time.time():
            when, sent, peer = self.slow.popleft()
            try:
                peer.send(self.hello[sent % len(self.hello) : sent % len(self.hello) + 1])
                self.slow.append((when + 1, sent + 1, peer))
            except OSError:
                peer.close()  # the other end does not wait for more


def crowd(host, ports, seconds, least=0):
    these, until = Crowd(host, ports, SLOW), time.time() + seconds
    while time.time() < until or these.opened < least:
        these.open()
        these.send_slowly()
    print(these.opened, "connections", flush=True)


def turns(host, ports, rate, seconds, n):
    these, begin = Crowd(host, ports, 0), time.time() + 1
    print(begin, flush=True)
    for tenth in range(10 * seconds * n):
        turn, within = divmod(tenth, 10 * seconds)
        time.sleep(max(0, begin + 2 * seconds * turn + within / 10 - time.time()))
        for _ in range(rate // 10):
            these.open()
    print(these.opened, "connections", flush=True)


if __name__ == "__main__":
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb in ("http", "crowd", "turns"):
        rest[0:1] = rest[0].rsplit(":", 1)
        rest[2:] = [int(word) for word in rest[2:]]
        rest[1] = int(rest[1]) if verb == "http" else [int(port) for port in rest[1].split(",")]
    {"record": record, "find": find, "http": http, "crowd": crowd, "turns": turns}[verb](*rest)
