#!/usr/bin/env python3
"""What transforms make of real pictures, beside torchvision's tensor functions: transforms.py MSLUA CIFAR10_FOLDER

  /usr/bin/python3 tools/golden/transforms.py ./mslua /data/cifar-10      needs python3-torchvision

Takes 1000 pictures of CIFAR-10, and JPEG files of 256 pixels made of 200 of them. The two sides use the same drawn
numbers: where a transform draws from a range, the range is one number; where it draws a place, a turn or an operation,
pictures of coordinates go through the same draws and tell it. Prints a table of the largest and the mean difference of
uint8 pixels, and fails where geometry differs by more than 1 or colour by more than 2.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode as I
from torchvision.transforms.autoaugment import _apply_op

MSLUA = os.path.abspath(sys.argv[1])
LUA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "transforms.lua")
NEAREST, BILINEAR, BICUBIC = I.NEAREST, I.BILINEAR, I.BICUBIC


def lua(value):
    if isinstance(value, (list, tuple)):
        return "{%s}" % ", ".join(map(lua, value))
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s = %s" % (k, lua(v)) for k, v in value.items())
    return '"%s"' % value if isinstance(value, str) else "nil" if value is None else repr(value)


def ours(pictures, jobs, shares=None):
    """Of each job the pictures, uint8 [n, h, w, 3]; all are of one size. `shares` gets those of each batch."""
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run([MSLUA, "run", LUA, "--", pictures, out, lua(jobs)], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            sys.exit(done.stderr)
        found = {}
        for name, *_ in jobs:
            parts, index = [], 0
            while os.path.exists("%s/%s_%d.png" % (out, name, index)):
                parts.append(np.asarray(Image.open("%s/%s_%d.png" % (out, name, index)).convert("RGB")))
                index += 1
            for i in range(index if shares is not None else 0):
                with open("%s/%s_%d.txt" % (out, name, i), encoding="utf-8") as file:
                    shares.append(float(file.read()))
            found[name] = np.concatenate(parts)
        return found


def split(grid, n):
    return grid.reshape(n, grid.shape[0] // n, grid.shape[1], 3)


def tensors(pictures):
    return [torch.from_numpy(np.ascontiguousarray(p)).permute(2, 0, 1) for p in pictures]


ROWS = []


def compare(kind, what, mine, theirs):
    theirs = np.stack([t.permute(1, 2, 0).numpy() for t in theirs])
    if mine.shape != theirs.shape:
        sys.exit("%s: %s beside %s" % (what, mine.shape, theirs.shape))
    difference = np.abs(mine.astype(int) - theirs.astype(int))
    ROWS.append((kind, what, len(mine), int(difference.max()), float(difference.mean())))


def box_of(coordinates, size):
    """Top, left, height and width of the part that a picture of coordinates, resized to `size`, was made of."""
    def line(values):
        places = np.arange(size) + 0.5
        slope, start = np.polyfit(places[size // 4:-size // 4], values[size // 4:-size // 4], 1)
        begin, length = int(round(start + 0.5)), int(round(slope * size))

        def error(box):
            exact = np.clip(box[0] + places * box[1] / size - 0.5, box[0], box[0] + box[1] - 1)
            return float(((exact - values) ** 2).sum())
        near = [(b, n) for b in range(begin - 2, begin + 3) for n in range(length - 3, length + 4) if n > 0]
        return min(near, key=error)
    top, height = line(coordinates[:, :, 1].mean(1))
    left, width = line(coordinates[:, :, 0].mean(0))
    return top, left, height, width


def fixed(pictures, path):
    """Transforms whose ranges are one number."""
    images, n = tensors(pictures), len(pictures)
    cases = [
        ("geometry", "Resize {48, 40}", "Resize", [[48, 40]], lambda t: F.resize(t, [48, 40], BILINEAR)),
        ("geometry", "Resize {48, 40}, bicubic", "Resize", {"size": [48, 40], "interpolation": "bicubic"},
         lambda t: F.resize(t, [48, 40], BICUBIC)),
        ("geometry", "CenterCrop {24, 20}", "CenterCrop", [[24, 20]], lambda t: F.center_crop(t, [24, 20])),
        ("geometry", "RandomHorizontalFlip 1", "RandomHorizontalFlip", [1.0], F.hflip),
        ("geometry", "RandomVerticalFlip 1", "RandomVerticalFlip", [1.0], F.vflip),
        ("geometry", "Pad {1, 2, 3, 4}", "Pad", {"padding": [1, 2, 3, 4], "fill_value": 9},
         lambda t: F.pad(t, [1, 2, 3, 4], 9)),
        ("geometry", "Pad 4, reflect", "Pad", {"padding": [4], "padding_mode": "reflect"},
         lambda t: F.pad(t, [4], padding_mode="reflect")),
    ]
    for angle in (-170, -45, -7.5, 15, 30, 90, 133):
        for resample, mode in (("nearest", NEAREST), ("bilinear", BILINEAR)):
            cases.append(("geometry", "RandomRotation %g, %s" % (angle, resample), "RandomRotation",
                          {"degrees": [angle, angle], "resample": resample},
                          lambda t, a=angle, m=mode: F.rotate(t, a, m, fill=[0.0] * 3)))
    for angle, shift, scale, shear in ((30, 3, 0.8, (0, 0)), (-75, -5, 1.3, (20, 0)), (160, 0, 1, (-30, 15))):
        for resample, mode in (("nearest", NEAREST), ("bilinear", BILINEAR)):
            cases.append(("geometry", "RandomAffine %g, %s" % (angle, resample), "RandomAffine",
                          {"degrees": [angle, angle], "translate": [shift / 32, shift / 32], "scale": [scale, scale],
                           "shear": [shear[0], shear[0], shear[1], shear[1]], "resample": resample},
                          lambda t, a=angle, x=shift, s=scale, h=shear, m=mode:
                          F.affine(t, a, [x, 0], s, list(h), m, fill=[0.0] * 3)))
    cases += [
        ("colour", "RandomEqualize", "RandomEqualize", [1.0], F.equalize),
        ("colour", "RandomAutoContrast", "RandomAutoContrast", [1.0], F.autocontrast),
        ("colour", "RandomAdjustSharpness 0.4", "RandomAdjustSharpness", [0.4, 1.0],
         lambda t: F.adjust_sharpness(t, 0.4)),
        ("colour", "RandomPosterize 3", "RandomPosterize", {"bits": [3]}, lambda t: F.posterize(t, 3)),
        ("colour", "RandomInvert", "RandomInvert", [1.0], F.invert),
        ("colour", "RandomGrayscale", "RandomGrayscale", [1.0], lambda t: F.rgb_to_grayscale(t, 3)),
    ]
    for name, function, factors in (("brightness", F.adjust_brightness, (0.4, 0.8, 1.3, 1.9)),
                                    ("contrast", F.adjust_contrast, (0.4, 0.8, 1.3, 1.9)),
                                    ("saturation", F.adjust_saturation, (0.3, 0.8, 1.3, 1.9)),
                                    ("hue", F.adjust_hue, (-0.4, -0.1, 0.1, 0.5))):
        for factor in factors:
            cases.append(("colour", "ColorJitter, %s %g" % (name, factor), "ColorJitter", {name: [factor, factor]},
                          lambda t, f=function, k=factor: f(t, k)))
    cases.append(("colour", "Grayscale 3", "Grayscale", {"num_output_channels": 3},
                  lambda t: F.rgb_to_grayscale(t, 3)))
    for sigma in (0.3, 1.0, 2.0):
        cases.append(("colour", "GaussianBlur 5, sigma %g" % sigma, "GaussianBlur",
                      {"kernel_size": [5], "sigma": [sigma, sigma]},
                      lambda t, s=sigma: F.gaussian_blur(t, [5, 5], [s, s])))
    jobs = [("job%d" % i, case[2], case[3]) for i, case in enumerate(cases)]
    found = ours(path, jobs)
    for i, (kind, what, _, _, function) in enumerate(cases):
        compare(kind, what, split(found["job%d" % i], n), [function(t) for t in images])


def crops(pictures, path, coordinates, side):
    """RandomResizedCrop: coordinates tell the place."""
    n, size = len(pictures), 24 if side < 64 else 224
    jobs = [("crop", "RandomResizedCrop", {"size": [size]})]
    mine = split(ours(path, jobs)["crop"], n)
    grid = split(ours(coordinates, jobs)["crop"], n).astype(float) / 255 * side
    theirs = []
    for t, c in zip(tensors(pictures), grid):
        theirs.append(F.resized_crop(t, *box_of(c, size), [size, size], BILINEAR))
    compare("geometry", "RandomResizedCrop %d of %d" % (size, side), mine, theirs)


def padded_crops(pictures, path, folder):
    """RandomCrop with padding: coordinates tell the place, blue what is the picture."""
    n, side, size, padding = len(pictures), pictures.shape[1], 32, 4
    coordinate_file(folder + "/x.npy", n, side, blue=1)
    jobs = [("crop", "RandomCrop", {"size": size, "padding": padding})]
    mine, found = split(ours(path, jobs)["crop"], n), split(ours(folder + "/x.npy", jobs)["crop"], n)
    theirs, places = [], set()
    for t, c in zip(tensors(pictures), found):
        rows, columns = np.nonzero(c[:, :, 2])
        left, top = (int(round(np.mean(c[rows, columns, k] / 255.0 * side - at)))
                     for k, at in ((0, columns), (1, rows)))
        places.add((top, left))
        theirs.append(F.crop(F.pad(t, [padding]), top + padding, left + padding, size, size))
    compare("geometry", "RandomCrop %d with padding %d, %d places" % (size, padding, len(places)), mine, theirs)


def erased(pictures, path, folder):
    """RandomErasing: what is white in a black picture is what a picture loses."""
    n, side = len(pictures), pictures.shape[1]
    np.save(folder + "/x.npy", np.zeros((n, side, side, 3), np.float32))
    mine = split(ours(path, [("e", "RandomErasing", {"prob": 0.75, "value": [17, 99, 203]})])["e"], n)
    found = split(ours(folder + "/x.npy", [("e", "RandomErasing", {"prob": 0.75, "value": 1})])["e"], n)
    theirs, count = [], 0
    for t, c in zip(tensors(pictures), found):
        rows, columns = np.nonzero(c[:, :, 0])
        if len(rows) > 0:
            count += 1
            t = F.erase(t, rows.min(), columns.min(), int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1,
                        torch.tensor([17, 99, 203], dtype=torch.uint8).view(3, 1, 1))
        theirs.append(t)
    compare("geometry", "RandomErasing, %d of %d pictures" % (count, n), mine, theirs)


def mixed(pictures, folder):
    """MixUpBatch and CutMixBatch: the labels tell the shares; batches of black and white pictures tell the box."""
    n, side, rows = len(pictures), pictures.shape[1], 100
    np.save(folder + "/x.npy", np.ascontiguousarray(pictures, np.float32) / 255)
    batches = torch.stack(tensors(pictures)).double().view(n // rows, rows, 3, side, side)
    shares = []
    mine = split(ours(folder + "/x.npy", [("m", "MixUpBatch", {"alpha": 0.8})], shares)["m"], n)
    theirs = [b.roll(1, 0).mul(1 - k).add(b.mul(k)) for b, k in zip(batches, shares)]
    compare("colour", "MixUpBatch, %d shares" % len(set(shares)), mine, torch.cat(theirs).round().byte())
    shares = []
    mine = split(ours(folder + "/x.npy", [("c", "CutMixBatch", {})], shares)["c"], n)
    stripes = np.zeros((n, side, side, 3), np.float32)
    stripes[::2] = 1
    np.save(folder + "/x.npy", stripes)
    found = split(ours(folder + "/x.npy", [("c", "CutMixBatch", {})])["c"], n)
    theirs = []
    for i, (b, k) in enumerate(zip(batches, shares)):
        box_rows, box_columns = np.nonzero(found[i * rows, :, :, 0] == 0)
        made = b.clone()
        if len(box_rows) > 0:
            y, x = slice(box_rows.min(), box_rows.max() + 1), slice(box_columns.min(), box_columns.max() + 1)
            made[:, :, y, x] = b.roll(1, 0)[:, :, y, x]
        if abs(1 - len(box_rows) / side ** 2 - k) > 1e-6:
            sys.exit("CutMixBatch: a box of %d pixels, the labels keep %g" % (len(box_rows), k))
        theirs.append(made)
    compare("geometry", "CutMixBatch, %d boxes" % len(set(shares)), mine, torch.cat(theirs).byte())


def strengths(name, share, side, wide):
    """What an operation of share of its range is called with; wide: TrivialAugmentWide's ranges, else RandAugment's."""
    if name in ("Identity", "AutoContrast", "Equalize"):
        return [0.0]
    if name == "Posterize":
        return [float(8 - int(round((6 if wide else 4) * share)))]
    if name == "Solarize":
        return [255.0 * (1 - share)]
    if name.startswith("Shear"):
        most = 0.99 if wide else 0.3
    elif name.startswith("Translate"):
        most = 32.0 if wide else 150.0 / 331 * side
    elif name == "Rotate":
        most = 135.0 if wide else 30.0
    else:
        most = 0.99 if wide else 0.9
    return [most * share, -most * share]


def augmented(what, pictures, path, arguments, shares):
    """One operation of the 14: the one that is nearest, of those that may have been drawn."""
    n, side, wide = len(pictures), pictures.shape[1], what == "TrivialAugmentWide"
    mine = split(ours(path, [("a", what, arguments)])["a"], n)
    operations = {(name, size) for share in shares for name in (
        "Identity", "AutoContrast", "Equalize", "Posterize", "Solarize", "ShearX", "ShearY", "TranslateX", "TranslateY",
        "Rotate", "Brightness", "Color", "Contrast", "Sharpness") for size in strengths(name, share, side, wide)}
    operations = sorted(operations)
    theirs, names = [], set()
    for picture, t in zip(mine, tensors(pictures)):
        target = torch.from_numpy(picture.copy()).permute(2, 0, 1).int()
        best = None
        for name, size in operations:
            made = t if name == "Identity" else _apply_op(t, name, size, NEAREST, None)
            far = int((made.int() - target).abs().max())
            if best is None or far < best[0]:
                best = (far, name, made)
        names.add(best[1])
        theirs.append(best[2])
    compare("colour", "%s, one of %d operations" % (what, len(names)), mine, theirs)


def coordinate_file(path, n, side, blue=0):
    """Pictures whose red is x and green is y, as shares of the side, float32."""
    y, x = np.mgrid[0:side, 0:side].astype(np.float32) / side
    np.save(path, np.repeat(np.stack([x, y, 0 * x + blue], -1)[None], n, 0))


def main():
    with open(sys.argv[2] + "/data_batch_1.bin", "rb") as file:
        records = np.frombuffer(file.read(3073 * 1000), dtype=np.uint8).reshape(-1, 3073)
    pictures = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    with tempfile.TemporaryDirectory() as folder:
        np.save(folder + "/x.npy", np.ascontiguousarray(pictures))
        fixed(pictures, folder + "/x.npy")
        augmented("RandAugment", pictures, folder + "/x.npy", {"num_ops": 1, "magnitude": 9}, [9 / 30])
        os.makedirs(folder + "/few")
        np.save(folder + "/few/x.npy", np.ascontiguousarray(pictures[:200]))
        augmented("TrivialAugmentWide", pictures[:200], folder + "/few/x.npy", {}, [k / 30 for k in range(31)])
        os.makedirs(folder + "/drawn")
        padded_crops(pictures, folder + "/x.npy", folder + "/drawn")
        erased(pictures, folder + "/x.npy", folder + "/drawn")
        mixed(pictures, folder + "/drawn")
        os.makedirs(folder + "/jpegs/a")
        for i in range(200):
            Image.fromarray(pictures[i]).resize((256, 256), Image.BICUBIC).save("%s/jpegs/a/%03d.jpg" % (folder, i),
                                                                                quality=92)
        decoded = np.stack([np.asarray(Image.open("%s/jpegs/a/%03d.jpg" % (folder, i))) for i in range(200)])
        compare("geometry", "a JPEG file, decoded", split(ours(folder + "/jpegs", [("d", None, None)])["d"], 200),
                tensors(decoded))
        os.makedirs(folder + "/places")
        coordinate_file(folder + "/places/x.npy", 200, 256)
        crops(decoded, folder + "/jpegs", folder + "/places/x.npy", 256)
        coordinate_file(folder + "/places/x.npy", len(pictures), 32)
        crops(pictures, folder + "/x.npy", folder + "/places/x.npy", 32)
    print("| transform | pictures | largest difference | mean |\n| --- | --- | --- | --- |")
    bad = False
    for kind, what, n, largest, mean in ROWS:
        print("| %s | %d | %d | %.4f |" % (what, n, largest, mean))
        bad = bad or largest > (1 if kind == "geometry" else 2)
    sys.exit("a difference is too large" if bad else 0)


main()
