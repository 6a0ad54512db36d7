"""Writes pil/: small pictures in many encodings and what PIL makes of them.

    pip install pillow && python make_pil_pictures.py

Each NAME.png, .jpg or .webp has a NAME.rgb beside it: the bytes of
Image.open(NAME).convert("RGB"). The one exception is gray16, where PIL clips
at 255; its .rgb holds the high byte of each sample three times.
"""

import io
import pathlib
import struct
import zlib

from PIL import Image

OUT = pathlib.Path(__file__).parent / "pil"
W, H = 37, 23


def picture(width=W, height=H, channels=3):
    """Flat blocks with hard edges beside ramps: both ends of chroma upsampling."""
    data = bytearray()
    for y in range(height):
        for x in range(width):
            block = (x // 5 + y // 4) % 4
            pixel = [(255, 30, 40), (20, 200, 60), (x * 6 % 256, 90, y * 11 % 256), (240, 240, 250)][block]
            alpha = (x * 7 + y * 13) % 256
            data += bytes((*pixel, alpha)[:channels]) if channels > 1 else bytes([pixel[0]])
    return bytes(data)


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png16(colour, samples):
    """A 16-bit PNG, which PIL does not write for colour: high byte as given, low byte its complement."""
    per_row = len(samples) // H
    rows = b""
    for y in range(H):
        row = samples[y * per_row : (y + 1) * per_row]
        rows += b"\0" + b"".join(bytes([v, 255 - v]) for v in row)
    head = struct.pack(">IIBBBBB", W, H, 16, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def store(name, data, reference=None):
    (OUT / name).write_bytes(data)
    if reference is None:
        reference = Image.open(io.BytesIO(data)).convert("RGB").tobytes()
    (OUT / name).with_suffix(".rgb").write_bytes(reference)


def save(name, image, fmt, **options):
    out = io.BytesIO()
    image.save(out, fmt, **options)
    store(name, out.getvalue())


def main():
    OUT.mkdir(exist_ok=True)
    rgb = Image.frombytes("RGB", (W, H), picture())
    rgba = Image.frombytes("RGBA", (W, H), picture(channels=4))
    gray = rgb.convert("L")
    palette = rgb.quantize(17)

    save("png_rgb.png", rgb, "PNG")
    save("png_rgba.png", rgba, "PNG")
    save("png_gray.png", gray, "PNG")
    save("png_bits1.png", gray.convert("1"), "PNG")
    save("png_gray_alpha.png", rgba.convert("LA"), "PNG")
    save("png_palette.png", palette, "PNG")
    save("png_palette_alpha.png", palette, "PNG", transparency=bytes(range(0, 255, 15)))
    store("png_rgb16.png", png16(2, picture()))
    store("png_rgba16.png", png16(6, picture(channels=4)))
    store("png_gray16.png", png16(0, picture(channels=1)), b"".join(bytes([v] * 3) for v in picture(channels=1)))

    save("jpeg_444.jpg", rgb, "JPEG", quality=90, subsampling=0)
    save("jpeg_422.jpg", rgb, "JPEG", quality=90, subsampling=1)
    save("jpeg_420.jpg", rgb, "JPEG", quality=90, subsampling=2)
    save("jpeg_progressive.jpg", rgb, "JPEG", quality=75, progressive=True)
    save("jpeg_gray.jpg", gray, "JPEG", quality=90)
    save("jpeg_cmyk.jpg", rgb.convert("CMYK"), "JPEG", quality=95)
    save("jpeg_narrow.jpg", rgb.crop((0, 0, 3, 9)), "JPEG", quality=90, subsampling=2)

    save("webp_lossy.webp", rgb, "WEBP", quality=80)
    save("webp_lossy_alpha.webp", rgba, "WEBP", quality=80)
    save("webp_lossy_even.webp", rgb.crop((0, 0, 36, 22)), "WEBP", quality=80)
    save("webp_lossless.webp", rgb, "WEBP", lossless=True)
    save("webp_lossless_alpha.webp", rgba, "WEBP", lossless=True, exact=True)


if __name__ == "__main__":
    main()
