# Makes the images that the tests read:  python3 make.py FASHION_MNIST_FOLDER
#   fashion/   the first images of each class of Fashion-MNIST (Zalando SE, MIT licence): 6 of train, 2 of test
#   shapes/    drawings by this script, 12 pixels wide: PNG written by this script, JPEG by Pillow
import gzip, os, struct, sys, zlib
import numpy as np
from PIL import Image

here = os.path.dirname(os.path.abspath(__file__))


def idx(path, array):
    header = struct.pack(">I", 0x800 + array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(header + array.tobytes())


def fashion(source):
    os.makedirs(f"{here}/fashion", exist_ok=True)
    for part, count in (("train", 6), ("t10k", 2)):
        images = np.frombuffer(gzip.open(f"{source}/{part}-images-idx3-ubyte.gz").read(), np.uint8, offset=16)
        labels = np.frombuffer(gzip.open(f"{source}/{part}-labels-idx1-ubyte.gz").read(), np.uint8, offset=8)
        chosen = np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(10)]))
        idx(f"{here}/fashion/{part}-images-idx3-ubyte.gz", images.reshape(-1, 28, 28)[chosen])
        idx(f"{here}/fashion/{part}-labels-idx1-ubyte.gz", labels[chosen])


def png(path, array):  # grey or colored
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + line.tobytes() for line in array)
    header = struct.pack(">IIBBBBB", array.shape[1], array.shape[0], 8, 0 if array.ndim == 2 else 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)))
        file.write(chunk(b"IEND", b""))


def shapes():
    down, across = np.mgrid[0:12, 0:12]
    for part, count in (("train", 4), ("val", 2)):
        for name in ("rings", "stripes"):
            os.makedirs(f"{here}/shapes/{part}/{name}", exist_ok=True)
            for i in range(count):
                wave = np.hypot(down - 4 - i, across - 6) if name == "rings" else down + (i + 1) * across
                grey = (127 + 120 * np.sin(wave * 1.3 + i)).astype(np.uint8)
                colors = np.stack([grey, 255 - grey, np.full_like(grey, 40 * i)], 2)
                path = f"{here}/shapes/{part}/{name}/{i}"
                if i == 3:
                    Image.fromarray(colors).save(path + ".jpg", quality=90)
                else:
                    png(path + ".png", grey if i == 1 else colors)


fashion(sys.argv[1])
shapes()
png(f"{here}/large.png", np.arange(180, dtype=np.uint8).reshape(9, 20))
