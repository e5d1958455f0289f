"""mslua's random numbers in NumPy: core/base/rng.cc and the initial values of core/step/parameter.cc."""

import numpy as np

_MASK = np.uint64(0xFFFFFFFF)
_LOW = np.uint64(32)


def stream_of(name, step=0):
    """FNV-1a, 64 bits, over the name and then the step's eight bytes: StreamOf."""
    h = 0xCBF29CE484222325
    for byte in name.encode() + step.to_bytes(8, "little"):
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def philox(seed, stream, blocks):
    """Philox4x32-10 (Salmon et al., SC 2011): uint64[4, n] of 32-bit words for counters (blocks, stream)."""
    blocks = np.asarray(blocks, np.uint64)
    c = [blocks & _MASK, blocks >> _LOW]
    c += [np.full_like(blocks, stream & 0xFFFFFFFF), np.full_like(blocks, stream >> 32)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> _LOW) ^ c[1] ^ np.uint64(k[0]), p1 & _MASK, (p0 >> _LOW) ^ c[3] ^ np.uint64(k[1]), p0 & _MASK]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c)


def _blocks(n):
    return np.arange((n + 3) // 4, dtype=np.uint64)


def uniform(seed, name, shape):
    """float32 in [0, 1), 24 random bits: FillUniform."""
    n = int(np.prod(shape))
    words = philox(seed, stream_of(name), _blocks(n)).T.ravel()[:n]
    return ((words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)).reshape(shape)


def normal(seed, name, shape):
    """float32, Box-Muller in double, rounded once: FillNormal."""
    n = int(np.prod(shape))
    w = philox(seed, stream_of(name), _blocks(n)).astype(np.float64)
    out = np.empty((4, w.shape[1]))
    for i in (0, 2):
        radius = np.sqrt(-2 * np.log((w[i] + 1) * 2.0**-32))
        angle = 6.283185307179586476925286766559 * (w[i + 1] * 2.0**-32)
        out[i], out[i + 1] = radius * np.cos(angle), radius * np.sin(angle)
    return out.T.ravel()[:n].astype(np.float32).reshape(shape)


def initial(seed, name, shape, rule):
    """A fresh parameter in float64. rule: 0, 1, ("normal", sigma), ("uniform", bound), ("he_normal_fan_out",),
    ("xavier_uniform",) of a matrix, or ("he_uniform_sqrt5",), which is uniform in +-1/sqrt(fan in)."""
    if not isinstance(rule, tuple):
        return np.full(shape, float(rule))
    kind, area = rule[0], float(np.prod(shape[2:]))
    if kind == "normal":
        return rule[1] * normal(seed, name, shape).astype(np.float64)
    if kind == "he_normal_fan_out":
        return np.sqrt(2.0) / np.sqrt(shape[0] * area) * normal(seed, name, shape).astype(np.float64)
    if kind == "uniform":
        bound = rule[1]
    elif kind == "xavier_uniform":
        bound = np.sqrt(6.0 / (shape[0] + shape[1]))
    else:
        bound = np.sqrt(3.0) * (np.sqrt(2 / (1 + np.sqrt(5.0)**2)) / np.sqrt(shape[1] * area))
    return bound * (2.0 * uniform(seed, name, shape).astype(np.float64) - 1)


def check():
    """The known answers of Random123's kat_vectors for philox4x32-10, as in core/base/base_test.cc."""
    ones = 2**64 - 1
    for seed, stream, index, wanted in (
        (0, 0, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (ones, ones, ones, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ):
        got = [int(word) for word in philox(seed, stream, np.array([index], np.uint64))[:, 0]]
        assert got == wanted, ("philox", got, wanted)
