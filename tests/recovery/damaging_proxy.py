"""Carries all TCP connections of a network namespace to and from another host, and damages bytes when it is told to.

usage: damaging_proxy.py PORT HOST, in the namespace; needs nft. Each line of the standard input asks for one damage: a
bit of the next byte that comes by is turned, or the byte is sent twice or not at all, as the seed on the line draws.
Prints "damaged" and where when that has happened, and "found" when one of the two programs has closed the connection.
"""

import random
import socket
import struct
import subprocess
import sys
import threading

SO_ORIGINAL_DST = 80
OWN_MARK = 78
RULES = """
table ip damage {
  chain in {
    type nat hook prerouting priority -100
    ip saddr %(host)s ip protocol tcp redirect to :%(port)d
  }
  chain out {
    type nat hook output priority -100
    ip daddr %(host)s ip protocol tcp meta mark != %(mark)d redirect to :%(port)d
  }
}
"""


class Proxy:
    def __init__(self, port):
        self.lock = threading.Lock()
        self.asked = None  # the generator of the damage that is due
        self.listener = socket.create_server(("", port), backlog=64)

    def say(self, word):
        with self.lock:
            print(word, flush=True)

    def damage(self, data):
        """With the lock held: the data, damaged if that is due, and what was done to it."""
        draw, self.asked = self.asked, None
        if draw is None:
            return data, None
        at = draw.randrange(len(data))
        byte = data[at:at + 1]
        new = draw.choice((bytes([byte[0] ^ 1 << draw.randrange(8)]), byte * 2, b""))
        return data[:at] + new + data[at + 1:], f"byte {at} of {len(data)}, {byte.hex()} became '{new.hex()}'"

    def carry(self, source, target, state, name):
        """One direction of a connection."""
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                with self.lock:
                    data, damaged = self.damage(data)
                if damaged:
                    state["damaged"] = True
                    self.say(f"damaged {name}: {damaged}")
                target.sendall(data)
        except OSError:
            pass
        with self.lock:
            found = state.pop("damaged", False)
        if found:
            self.say("found")
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def connect(self, client):
        port, address = struct.unpack("!2xH4s8x", client.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, OWN_MARK)
        try:
            server.connect((socket.inet_ntoa(address), port))
        except OSError:
            client.close()
            return
        state = {}
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target, name in ((client, server, f"to port {port}"), (server, client, f"from port {port}")):
            threading.Thread(target=self.carry, args=(source, target, state, name), daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()


def main():
    port, host = int(sys.argv[1]), sys.argv[2]
    proxy = Proxy(port)
    rules = RULES % {"port": port, "host": host, "mark": OWN_MARK}
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
    threading.Thread(target=proxy.accept, daemon=True).start()
    proxy.say("ready")
    for line in sys.stdin:
        with proxy.lock:
            proxy.asked = random.Random(int(line))


if __name__ == "__main__":
    main()
