"""Records what goes over a network interface, or says what of it can be read.

wire.py record INTERFACE FILE      until it is ended; writes READY to standard output when it has begun
wire.py find FILE                  the secrets that the file holds, one a line
wire.py http HOST:PORT             asks for a page, and prints what comes back
wire.py crowd HOST:PORT SECONDS    opens connections that send random bytes, cut ClientHellos, or a byte at a time
"""
import os
import random
import select
import signal
import socket
import struct
import sys
import time

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


def crowd(host, port, seconds):
    hello = bytes.fromhex("160301007a0100007603") + os.urandom(120)
    until, slow = time.time() + seconds, []
    while time.time() < until:
        try:
            peer = socket.create_connection((host, port), 1)
            kind = random.randrange(4)
            if kind == 0:
                peer.sendall(os.urandom(random.randrange(1, 200)))
            elif kind == 1:
                peer.sendall(hello[: random.randrange(1, len(hello))])
            elif kind == 2:
                peer.sendall(b"\x16\x03" + os.urandom(random.randrange(1, 600)))
            if kind == 3:
                slow.append([peer, 0])
            else:
                peer.close()
            for one in slow:
                one[0].send(hello[one[1] % len(hello) : one[1] % len(hello) + 1])
                one[1] += 1
        except OSError:
            slow = [one for one in slow if one[0].fileno() >= 0 and one[1] < 50]
            time.sleep(0.001)
        if len(slow) > 400:
            slow.pop(0)[0].close()


if __name__ == "__main__":
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb in ("http", "crowd"):
        rest[0:1] = rest[0].rsplit(":", 1)
        rest[1:] = [int(word) for word in rest[1:]]
    {"record": record, "find": find, "http": http, "crowd": crowd}[verb](*rest)
