#!/usr/bin/env python3
"""An .npz file has the tensors of a .safetensors file, bf16 as f32: npz_is.py A.npz B.safetensors"""
import ast
import json
import struct
import sys
import zipfile

DTYPES = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<f4", "I32": "<i4", "I64": "<i8", "U8": "|u1",
          "BOOL": "|b1"}
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None, archive.testzip()
with open(sys.argv[2], "rb") as f:
    data = f.read()
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + length])
header.pop("__metadata__", None)
assert sorted(archive.namelist()) == sorted(name + ".npy" for name in header), archive.namelist()
for name, tensor in header.items():
    array = archive.read(name + ".npy")
    assert array[:8] == b"\x93NUMPY\x01\x00", name
    begin = 10 + struct.unpack("<H", array[8:10])[0]
    said = ast.literal_eval(array[10:begin].decode())
    wanted = {"descr": DTYPES[tensor["dtype"]], "fortran_order": False, "shape": tuple(tensor["shape"])}
    assert begin % 64 == 0 and said == wanted, (name, said, wanted)
    first, last = (8 + length + offset for offset in tensor["data_offsets"])
    values = data[first:last]
    if tensor["dtype"] == "BF16":
        values = b"".join(b"\0\0" + values[i:i + 2] for i in range(0, len(values), 2))
    assert array[begin:] == values, name
print("%d arrays are the tensors" % len(header))
