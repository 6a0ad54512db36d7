#!/usr/bin/env python3
"""Golden data for the geometry of package ppocr, from the libraries it follows.

    generate_geometry.py [--rapidocr DIR] [--out DIR] [--seed N] [--times N] [--inputs DIR]
    generate_geometry.py --compare DIR DIR

DIR after --rapidocr is the folder of a rapidocr package (3.10.0 was used), by default
the one that is installed: its own DBPostProcess, get_rotate_crop_image and sorted_boxes are run, taken out of the
files so that nothing else of the package is needed. --times N makes N times as many
cases, for a look beyond what is kept in the repository. --inputs takes the pictures
that everything starts from out of another folder, made with the same seed; --compare
prints how two folders then differ.

Kept is what pip brings today: OpenCV 5.0.0, pyclipper 1.4.0, shapely 2.2.0, NumPy
2.4.6. The same script was run with OpenCV 4.6.0, pyclipper 1.2.1, shapely 1.8.5 and
NumPy 1.24.2 (Debian 12). They differ so:

  - resize, contours (as sets of hulls), fillPoly, the Clipper outlines of equal corners
    and the order of boxes: not at all.
  - warpPerspective with INTER_CUBIC: 4.6 takes source coordinates to 32nds of a pixel,
    5.0 as they are; 6 % of the values differ, by 4 levels at most.
  - boxPoints: 5.0 calculates all four corners, 4.6 mirrors two of them; minAreaRect: an
    angle within [-90, 0) instead of (0, 90], and with it the order of the corners. A
    third of the boxes differ by up to 0.00005 px, now and then the other one of two
    rectangles of the same area is taken. pyclipper cuts corners to whole pixels, so 0.5 % of
    the outlines differ, and of 1188 boxes in whole maps two, by a pixel.
"""
import argparse
import ast
import importlib.util
import json
import math
import os
from typing import List, Tuple

import cv2
import numpy as np
import pyclipper
from shapely.geometry import Polygon


def take(path, names):
    """The named classes, functions and constants of a Python file."""
    tree = ast.parse(open(path, encoding="utf-8").read())
    found = []
    for node in ast.walk(tree):
        name = getattr(node, "name", None)
        if isinstance(node, ast.Assign):
            name = getattr(node.targets[0], "id", None)
        if name in names:
            node.decorator_list = []
            found.append(node)
    space = dict(np=np, cv2=cv2, pyclipper=pyclipper, Polygon=Polygon, List=List, Tuple=Tuple)
    exec(compile(ast.Module(body=found, type_ignores=[]), path, "exec"), space)
    return space


def installed():
    """The folder of the installed rapidocr, which is not imported."""
    spec = importlib.util.find_spec("rapidocr")
    return os.path.dirname(spec.origin) if spec else None


def blur(a, sigma):
    """A Gaussian blur that no version of OpenCV changes."""
    x = np.arange(-int(3 * sigma) - 1, int(3 * sigma) + 2)
    k = np.exp(-x * x / (2 * sigma * sigma))
    for axis in (0, 1):
        n = a.shape[axis]
        i = np.clip(np.arange(n)[:, None] + x, 0, n - 1)
        a = np.moveaxis(np.moveaxis(a, axis, 0)[i], 1, -1) @ (k / k.sum())
        a = np.moveaxis(a, 0, axis)
    return a.astype(np.float32)


INPUTS = None


def picture(out, name, make, flags=cv2.IMREAD_COLOR):
    """The picture of that name, made or taken out of the other folder, and kept."""
    img = make()
    if INPUTS:
        img = cv2.imread(os.path.join(INPUTS, name), flags)
    cv2.imwrite(os.path.join(out, name), img, [cv2.IMWRITE_PNG_COMPRESSION, 9])
    return img


def exact(a):
    """float32 with as many digits as tell it apart."""
    return [[float(f"{v:.9g}") for v in p] for p in np.asarray(a, np.float32).tolist()]


def texture(rng, h, w):
    """Something like a photograph with text in it."""
    img = cv2.GaussianBlur(rng.integers(0, 256, (h, w, 3), dtype=np.uint8), (0, 0), 2.5)
    img = cv2.normalize(img, None, 0, 255, cv2.NORM_MINMAX)
    cv2.putText(img, "Wq7", (3, h - 8), cv2.FONT_HERSHEY_SIMPLEX, h / 45, (255, 250, 240), 2)
    return img


def ordered(box):
    s = sorted(box.tolist(), key=lambda p: p[0])
    l, r = sorted(s[:2], key=lambda p: p[1]), sorted(s[2:], key=lambda p: p[1])
    return np.float32([l[0], r[0], r[1], l[1]])


def resizes(out, rng, times):
    cases = []
    sizes = [((30, 40), [(58, 43), (80, 60), (20, 15), (20, 30), (40, 15), (13, 9), (39, 31), (1, 1), (41, 1)]),
             ((15, 61), [(97, 24), (48, 12), (30, 7), (61, 30)]), ((1, 5), [(9, 3)]), ((7, 1), [(3, 9), (1, 3)])]
    for t in range(times):
        for k, ((h, w), dsts) in enumerate(sizes):
            name = f"resize_{t}_{k}.png"
            src = picture(out, name, lambda: texture(rng, h, w))
            if t:
                dsts = [tuple(int(v) for v in rng.integers(1, 120, 2)) for _ in range(12)]
            for j, (dw, dh) in enumerate(dsts):
                to = f"resize_{t}_{k}_{j}.png"
                cv2.imwrite(os.path.join(out, to), cv2.resize(src, (dw, dh)))
                cases.append(dict(src=name, dst=to, w=dw, h=dh))
    return cases


def warps(out, rng, times, crop):
    cases = []
    for t in range(times):
        name = f"warp_{t}.png"
        src = picture(out, name, lambda: texture(rng, 70, 90))
        quads = [np.float32([[10, 12], [60, 12], [60, 30], [10, 30]]), np.float32([[20, 5], [32, 5], [32, 60], [20, 60]]),
                 np.float32([[0, 0], [89, 0], [89, 69], [0, 69]]), np.float32([[5, 7], [70, 12], [66, 40], [8, 33]]),
                 np.float32([[20, 2], [30, 0], [45, 60], [33, 66]]), np.float32([[40, 40], [46, 40], [46, 48], [40, 48]])]
        for a in (3, -7, 20, -38, 60, 88, -90):
            box = cv2.boxPoints(((45 + float(rng.uniform(-8, 8)), 35), (50, 16), a)).astype(np.int32)
            quads.append(np.clip(ordered(box), 0, [89, 69]).astype(np.float32))
        for c in ((4, 5), (85, 64), (80, 3)):  # at the border
            box = cv2.boxPoints((c, (30, 14), float(rng.uniform(-30, 30)))).astype(np.int32)
            quads.append(np.clip(ordered(box), 0, [89, 69]).astype(np.float32))
        for j, q in enumerate(quads):
            to = f"warp_{t}_{j}.png"
            cv2.imwrite(os.path.join(out, to), crop(src, q))
            cases.append(dict(src=name, dst=to, quad=q.tolist()))
    return cases


def hull(points):
    h = cv2.convexHull(np.asarray(points).reshape(-1, 1, 2).astype(np.int32)).reshape(-1, 2)
    return sorted(h.tolist(), key=lambda p: (p[1], p[0]))


def bits(mask):
    return np.packbits(mask.astype(np.uint8), axis=1).tobytes().hex()


def masks(rng, times, post):
    """Random masks: dilated, the hulls of their contours and the boxes around them."""
    cases = []
    for t in range(14 * times):
        h, w = int(rng.integers(6, 34)), int(rng.integers(6, 75))
        n = blur(rng.random((h, w)), float(rng.uniform(0.5, 2.5)))
        m = (n > np.quantile(n, rng.uniform(0.3, 0.85))).astype(np.uint8)
        if t == 0:
            m[:] = 1
        d = cv2.dilate(m, np.array([[1, 1], [1, 1]]))
        contours = cv2.findContours(m * 255, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]
        found = []
        for c in contours:
            box, side = post.get_mini_boxes(c)
            # Every pixel weighs something else: which ones count shows in the mean.
            weight = (np.arange(h * w, dtype=np.float32) % 251 / 256).reshape(h, w)
            found.append(dict(hull=hull(c), box=exact(box), side=float(side), slow=float(post.box_score_slow(weight, c.copy()))))
        found.sort(key=lambda f: (f["hull"], f["side"]))
        cases.append(dict(w=w, h=h, mask=bits(m), dilated=bits(d), contours=found))
    return cases


def rectangles(rng, times, post):
    """Bars at every angle: the box around, grown, and the box around that."""
    cases = []
    while len(cases) < 110 * times:
        w, h = rng.uniform(6, 300), rng.uniform(4, 60)
        angle = float(rng.choice([0, 90, rng.uniform(-15, 15), rng.uniform(-90, 90)]))
        m = np.zeros((420, 420), np.uint8)
        c = (float(rng.uniform(170, 250)), float(rng.uniform(170, 250)))
        cv2.fillPoly(m, [cv2.boxPoints((c, (float(w), float(h)), angle)).astype(np.int32)], 255)
        m = cv2.dilate(m, np.ones((2, 2), np.uint8))
        contour = cv2.findContours(m, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0][0]
        box, side = post.get_mini_boxes(contour)
        poly = Polygon(box)
        distance = poly.area * post.unclip_ratio / poly.length
        grown = post.unclip(box)
        after, after_side = post.get_mini_boxes(grown)
        cases.append(dict(hull=hull(contour), box=exact(box), side=float(side), distance=distance,
                          outline=hull(grown), grown=exact(after), grown_side=float(after_side)))
    return cases


def scores(out, rng, times, post):
    prob = cv2.GaussianBlur(rng.random((60, 90)).astype(np.float32), (0, 0), 1.0)
    prob = (cv2.normalize(prob, None, 0, 1, cv2.NORM_MINMAX) * 255).astype(np.uint8)
    prob = picture(out, "score.png", lambda p=prob: p, cv2.IMREAD_GRAYSCALE)
    p = prob.astype(np.float32) / np.float32(255)
    cases = []
    for t in range(80 * times):
        c = (float(rng.uniform(5, 85)), float(rng.uniform(5, 55)))
        if t % 4 == 0:  # well within
            c = (45.0, 30.0)
        size = (float(rng.uniform(3, 40)), float(rng.uniform(3, 16)))
        pts = cv2.boxPoints((c, size, float(rng.uniform(-90, 90))))
        box = ordered(pts).astype(np.float32)
        cases.append(dict(box=exact(box), score=float(post.box_score_fast(p, box))))
    return cases


def scene(rng, h, w):
    """A map as a detector gives it: smooth bars, blobs, rings within rings, faint noise."""
    m = np.zeros((h, w), np.float32)
    for _ in range(int(rng.integers(1, 8))):
        one = np.zeros((h, w), np.float32)
        kind = rng.integers(0, 6)
        c = (float(rng.uniform(5, w - 5)), float(rng.uniform(5, h - 5)))
        size = (float(rng.uniform(8, w * 0.7)), float(rng.uniform(4, 20)))
        p = float(rng.uniform(0.35, 1))
        angle = float(rng.choice([0, rng.uniform(-8, 8), rng.uniform(-90, 90)]))
        if kind < 4:
            cv2.fillPoly(one, [cv2.boxPoints((c, size, angle)).astype(np.int32)], p)
        elif kind == 4:
            cv2.ellipse(one, (int(c[0]), int(c[1])), (int(size[0] / 2), int(size[1] / 2)), angle, 0, 360, p, -1)
        else:
            for k, r in enumerate((30, 22, 14, 7)):
                cv2.circle(one, (int(c[0]), int(c[1])), r, p if k % 2 == 0 else 0.0, -1)
        m = np.maximum(m, cv2.GaussianBlur(one, (0, 0), float(rng.uniform(0.6, 2))))
    m += cv2.GaussianBlur(rng.normal(0, 1, (h, w)).astype(np.float32), (0, 0), 1) * float(rng.choice([0, 0.02, 0.06]))
    return (np.clip(m, 0, 1) * 63).astype(np.uint8) * 4


def regions(out, rng, times, DB):
    cases = []
    for t in range(14 * times):
        h, w = int(rng.integers(3, 7)) * 32, int(rng.integers(3, 8)) * 32
        name = f"map_{t}.png"
        raw = picture(out, name, lambda: scene(rng, h, w), cv2.IMREAD_GRAYSCALE)
        p = (raw.astype(np.float32) / np.float32(255))[None, None]
        for box_thresh, ratio, dilate, mode in ((0.5, 1.6, True, "fast"), (0.6, 1.5, False, "fast"), (0.5, 1.6, True, "slow")):
            dest = (int(h * rng.uniform(0.4, 2)), int(w * rng.uniform(0.4, 2)))
            boxes, s = DB(0.3, box_thresh, 1000, ratio, mode, dilate)(p, dest)
            cases.append(dict(map=name, dest=[dest[1], dest[0]], box_thresh=box_thresh, ratio=ratio, dilate=dilate,
                              slow=mode == "slow", boxes=np.asarray(boxes, float).astype(int).tolist(), scores=[float(v) for v in s]))
    return cases


def bubble(boxes):
    """PaddleOCR's sorted_boxes, as its behaviour is described: by y and x, then a pass."""
    b = sorted(boxes.tolist(), key=lambda q: (q[0][1], q[0][0]))
    for i in range(len(b) - 1):
        for j in range(i, -1, -1):
            if abs(b[j + 1][0][1] - b[j][0][1]) < 10 and b[j + 1][0][0] < b[j][0][0]:
                b[j], b[j + 1] = b[j + 1], b[j]
            else:
                break
    return b


def orders(rng, times, sorted_boxes):
    cases = []
    for t in range(20 * times):
        n = int(rng.integers(1, 16))
        top = np.stack([rng.integers(0, 400, n), rng.integers(0, int(rng.choice([20, 60, 300])), n)], 1)
        boxes = np.stack([top, top + [50, 0], top + [50, 20], top + [0, 20]], 1).astype(np.float32)
        first = lambda bs: [[int(b[0][0]), int(b[0][1])] for b in bs]
        cases.append(dict(boxes=first(boxes), lines=first(sorted_boxes(boxes)), bubble=first(bubble(boxes))))
    return cases


def compare(a, b):
    for name in sorted(os.listdir(a)):
        if name.endswith(".png"):
            continue
        x, y = (json.load(open(os.path.join(d, name))) for d in (a, b))
        if name in ("resize.json", "warp.json"):
            d = [np.abs(cv2.imread(os.path.join(a, c["dst"])).astype(int) - cv2.imread(os.path.join(b, c["dst"]))).ravel() for c in x]
            d = np.concatenate(d)
            print(f"{name}: {len(x)} pictures, {np.mean(d > 0):.4%} of the values differ, by {d.max()} at most")
            continue
        fields = {}
        def walk(p, q, key):
            if isinstance(p, dict):
                for k in p:
                    walk(p[k], q.get(k), k)
            elif isinstance(p, list) and p and isinstance(p[0], dict):
                for u, v in zip(p, q):
                    walk(u, v, key)
            elif p is not None:
                n = fields.setdefault(key, [0, 0, 0.0])
                n[0] += 1
                if p != q:
                    n[1] += 1
                    if np.shape(p) == np.shape(q) and np.asarray(p).dtype != object and not isinstance(p, (str, bool)):
                        n[2] = max(n[2], float(np.abs(np.asarray(p, float) - np.asarray(q, float)).max()))
                    else:
                        n[2] = math.inf
        walk(x, y, "")
        print(f"{name}:", ", ".join(f"{k} {n[1]}/{n[0]} differ by <= {n[2]:.3g}" for k, n in fields.items() if n[1]) or "equal")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rapidocr", default=installed())
    ap.add_argument("--out", default=os.path.join(here, "geometry"))
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--times", type=int, default=1)
    ap.add_argument("--inputs")
    ap.add_argument("--compare", nargs=2)
    args = ap.parse_args()
    global INPUTS
    INPUTS = args.inputs
    if args.compare:
        return compare(*args.compare)
    os.makedirs(args.out, exist_ok=True)
    DB = take(os.path.join(args.rapidocr, "ch_ppocr_det", "utils.py"), ["DBPostProcess"])["DBPostProcess"]
    crop = take(os.path.join(args.rapidocr, "utils", "process_img.py"), ["get_rotate_crop_image"])["get_rotate_crop_image"]
    sort = take(os.path.join(args.rapidocr, "ch_ppocr_det", "main.py"), ["sorted_boxes", "_BOX_SORT_Y_THRESHOLD"])["sorted_boxes"]
    post = DB(0.3, 0.5, 1000, 1.6, "fast", True)
    seeds = iter(np.random.SeedSequence(args.seed).spawn(8))
    rng = lambda: np.random.default_rng(next(seeds))
    made = dict(resize=resizes(args.out, rng(), args.times), warp=warps(args.out, rng(), args.times, crop),
                masks=masks(rng(), args.times, post), rectangles=rectangles(rng(), args.times, post),
                score=scores(args.out, rng(), args.times, post), regions=regions(args.out, rng(), args.times, DB),
                order=orders(rng(), args.times, sort))
    made["versions"] = [dict(opencv=cv2.__version__, pyclipper=getattr(pyclipper, "__version__", "?"), numpy=np.__version__)]
    for name, cases in made.items():
        with open(os.path.join(args.out, name + ".json"), "w") as f:
            json.dump(cases, f, separators=(",", ":"))
            f.write("\n")


if __name__ == "__main__":
    main()
