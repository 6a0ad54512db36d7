package media

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/webp"

	"github.com/rewardloop/rewardloop/rewards"
)

// maxScans is the most scans of one JPEG. Encoders write about 10; each scan of
// a progressive picture visits every block again, so that a file of 1000 empty
// scans costs minutes.
const maxScans = 64

// fullScans is how many scans a picture of Config.MaxPixels may have, and so how many pixels all
// scans of a smaller one may visit together. 64 scans of 4096×4096 pixels, in a file of 35 KB,
// take more than 3 s.
const fullScans = 16

// tableBytes is what a decoder allocates beside what depends on the picture: tables and buffers
// of its input.
const tableBytes = 256 << 10

// header is what a picture says of itself before it is decoded.
type header struct {
	format        rewards.Encoding
	width, height int
	// scratch is an upper bound of what the decoder allocates beside the result, in bytes.
	scratch int64
	// scans are the places in the file where the scans of a JPEG begin.
	scans []int
}

func (h header) pixels() int64 { return int64(h.width) * int64(h.height) }

// padded is the number of pixels with both sides rounded up to whole blocks of 32.
func (h header) padded() int64 { return (int64(h.width) + 31) * (int64(h.height) + 31) }

// inspect checks an encoded picture and finds what decoding it takes. It reads the file, but
// allocates nothing of the size the header claims, and 1 MiB at most.
func (d *Decoder) inspect(ctx context.Context, want rewards.Encoding, data []byte) (header, error) {
	if err := ctx.Err(); err != nil {
		return header{}, fmt.Errorf("before decoding: %w", err)
	}
	h := header{format: Sniff(data)}
	switch {
	case h.format == "":
		return header{}, bad("these %d bytes are not a PNG, JPEG or WebP picture", len(data))
	case want != "" && h.format != want:
		return header{}, bad("the bytes are a %s picture, but the sample declares %s", h.format, want)
	}
	if err := d.measure(&h, data); err != nil {
		if errors.Is(err, rewards.BadInput) {
			return header{}, err
		}
		return header{}, bad("the header of this %s: %w", h.format, err)
	}
	return h, nil
}

// measure reads the size of a picture and finds what decoding it takes.
func (d *Decoder) measure(h *header, data []byte) (err error) {
	var cfg image.Config
	var scan jpegScan
	switch h.format {
	case rewards.PNG:
		cfg, err = png.DecodeConfig(bytes.NewReader(data))
	case rewards.JPEG:
		if scan, err = scanJPEG(data); err == nil {
			cfg, err = jpeg.DecodeConfig(bytes.NewReader(data))
		}
	default:
		if err = checkChunks(data); err == nil {
			cfg, err = webp.DecodeConfig(bytes.NewReader(data))
		}
	}
	if err != nil {
		return err // inspect wraps it
	}
	if err := d.checkSize(cfg.Width, cfg.Height); err != nil {
		return err
	}
	h.width, h.height = cfg.Width, cfg.Height
	switch h.format {
	case rewards.PNG:
		h.scratch = h.padded()*pngPixel(data) + tableBytes
	case rewards.JPEG:
		most := int64(fullScans) * int64(d.cfg.MaxPixels)
		if n := int64(len(scan.starts)); n*h.pixels() > most {
			return bad("%d scans of %d×%d pixels: all scans together may visit %d pixels", n, h.width, h.height, most)
		}
		h.scans = scan.starts
		h.scratch = h.padded()*scan.pixel() + tableBytes
	default:
		trees, err := webpTrees(data, h.width, h.height)
		if err != nil {
			return err
		}
		// A lossless picture has 4 bytes a pixel, twice while a palette is expanded; alpha of a lossy
		// one is such a picture, too. The tiles of the transforms have less than 1 together. The
		// partitions of a lossy picture are copied.
		h.scratch = h.padded()*12 + trees + int64(len(data)) + tableBytes
	}
	return nil
}

// checkSize refuses a size without pixels or with too many.
func (d *Decoder) checkSize(width, height int) error {
	if width < 1 || height < 1 {
		return bad("a picture of %d×%d has no pixels", width, height)
	}
	// Division, because the product of two claims may overflow.
	if width > d.cfg.MaxPixels/height {
		return bad("a picture of %d×%d is beyond the limit of %d pixels", width, height, d.cfg.MaxPixels)
	}
	return nil
}

// Sniff returns the format of an encoded picture from its first bytes: rewards.JPEG, PNG or WebP,
// or "" for any other content.
func Sniff(data []byte) rewards.Encoding {
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		return rewards.PNG
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		return rewards.JPEG
	case len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		return rewards.WebP
	}
	return ""
}

// pngPixel is what package png allocates for a pixel, in bytes. An interlaced picture is decoded
// pass by pass into a second copy. The fields are those of the first chunk, which DecodeConfig
// has checked.
func pngPixel(data []byte) int64 {
	const gray, palette = 0, 3
	depth, kind, interlaced := data[24], data[25], data[28] != 0
	n := int64(4)
	switch {
	case kind == palette, kind == gray && !bytes.Contains(data, []byte("tRNS")): // with it gray gets colors
		n = 1
	}
	if depth == 16 {
		n = max(2*n, 2)
	}
	if interlaced {
		n *= 2
	}
	return n
}

// jpegScan is what the markers of a JPEG say.
type jpegScan struct {
	starts      []int // of the scans
	progressive bool
	components  int
}

// pixel is an upper bound of what package jpeg allocates for a pixel, in bytes: a plane for each
// component, a copy of them where they are RGB or CMYK, and an int32 for each coefficient of
// a progressive picture.
func (j jpegScan) pixel() int64 {
	n := int64(j.components)
	if j.progressive {
		n += 4 * n
	}
	if j.components > 1 {
		n += 4
	}
	return n
}

// scanJPEG walks the markers of a JPEG and refuses one with more than maxScans scans. It may
// count a marker that a decoder would not see, never the other way round: inside of
// entropy-coded data a 0xFF is always followed by 0x00 or a restart marker.
func scanJPEG(data []byte) (found jpegScan, err error) {
	const (
		sof0 = 0xc0
		sof2 = 0xc2
		rst0 = 0xd0
		eoi  = 0xd9
		sos  = 0xda
	)
	for i := 2; i+1 < len(data); {
		next := bytes.IndexByte(data[i:len(data)-1], 0xff)
		if next < 0 {
			break
		}
		i += next
		marker := data[i+1]
		if marker == 0xff { // fill byte
			i++
			continue
		}
		i += 2
		if marker == 0 || marker == 1 || marker >= rst0 && marker <= eoi {
			continue // no length follows
		}
		switch {
		case marker >= sof0 && marker <= sof2 && i+7 < len(data):
			found.progressive = found.progressive || marker == sof2
			found.components = max(found.components, int(data[i+7]))
		case marker == sos:
			if len(found.starts) == maxScans {
				return jpegScan{}, fmt.Errorf("more than %d scans", maxScans)
			}
			found.starts = append(found.starts, i-2)
		}
		if i+2 > len(data) {
			break
		}
		i += int(binary.BigEndian.Uint16(data[i:]))
	}
	return found, nil
}

var errChunk = errors.New("a chunk claims more bytes than the file has")

// checkChunks holds the lengths that a WebP file claims against its real one:
// the decoder allocates by them.
func checkChunks(data []byte) error {
	if int64(binary.LittleEndian.Uint32(data[4:])) > int64(len(data)-8) {
		return errChunk
	}
	for rest := data[12:]; len(rest) >= 8; {
		n := int64(binary.LittleEndian.Uint32(rest[4:]))
		if n > int64(len(rest)-8) {
			return errChunk
		}
		rest = rest[min(int64(len(rest)), 8+n+n&1):]
	}
	return nil
}

// webpTrees is an upper bound of what the Huffman trees of a WebP picture take: those of a lossless
// one, or of the alpha of a lossy one.
func webpTrees(data []byte, width, height int) (int64, error) {
	const compressed = 1 // of alpha
	var total int64
	for rest := data[12:]; len(rest) >= 8; {
		n := int64(binary.LittleEndian.Uint32(rest[4:]))
		chunk := rest[8 : 8+n]
		switch string(rest[:4]) {
		case "VP8 ":
			return total, nil
		case "VP8L":
			if len(chunk) < vp8lHeader || chunk[0] != 0x2f {
				return 0, errVP8L
			}
			size := binary.LittleEndian.Uint32(chunk[1:])
			if w, h := int(size&0x3fff)+1, int(size>>14&0x3fff)+1; w != width || h != height {
				return 0, fmt.Errorf("the lossless picture is %d×%d, but the file header has %d×%d", w, h, width, height)
			}
			return treeBytes(chunk[vp8lHeader:], width, height)
		case "ALPH":
			if total > 0 || n == 0 || chunk[0]&3 != compressed {
				break
			}
			trees, err := treeBytes(chunk[1:], width, height)
			if err != nil {
				return 0, fmt.Errorf("alpha: %w", err)
			}
			total = trees
		}
		rest = rest[min(int64(len(rest)), 8+n+n&1):]
	}
	return total, nil
}

// vp8lHeader is the length of the header of a lossless picture: a number, its size, a version.
const vp8lHeader = 5
