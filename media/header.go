package media

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/webp"

	"github.com/rewardloop/rewardloop/rewards"
)

// maxScans is the most scans of one JPEG. Encoders write about 10; each scan of
// a progressive picture visits every block again, so that a file of 1000 empty
// scans costs minutes.
const maxScans = 64

// header is what a picture says of itself before it is decoded.
type header struct {
	format        rewards.Encoding
	width, height int
	// perPixel is an upper bound of what the decoder itself allocates, in bytes
	// per pixel.
	perPixel int64
}

func (h header) pixels() int64 { return int64(h.width) * int64(h.height) }

// scratch is what decoding allocates beside the result: the decoder's own
// picture, rounded up to whole blocks of 32, and 4 MiB for tables.
func (h header) scratch() int64 {
	return (int64(h.width)+31)*(int64(h.height)+31)*h.perPixel + 4<<20
}

// inspect checks the header of an encoded picture. It reads the file, but
// allocates nothing of the size the header claims.
func (d *Decoder) inspect(ctx context.Context, want rewards.Encoding, data []byte) (header, error) {
	if err := ctx.Err(); err != nil {
		return header{}, fmt.Errorf("before decoding: %w", err)
	}
	format := Sniff(data)
	switch {
	case format == "":
		return header{}, bad("these %d bytes are not a PNG, JPEG or WebP picture", len(data))
	case want != "" && format != want:
		return header{}, bad("the bytes are a %s picture, the sample says %s", format, want)
	}
	cfg, perPixel, err := readHeader(format, data)
	if err != nil {
		return header{}, bad("the header of this %s: %w", format, err)
	}
	if err := d.checkSize(cfg.Width, cfg.Height); err != nil {
		return header{}, err
	}
	return header{format, cfg.Width, cfg.Height, perPixel}, nil
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

// Sniff tells the format of an encoded picture by its first bytes: rewards.JPEG, PNG or WebP;
// "" for any other.
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

func readHeader(format rewards.Encoding, data []byte) (cfg image.Config, perPixel int64, err error) {
	switch format {
	case rewards.PNG:
		cfg, err = png.DecodeConfig(bytes.NewReader(data))
		// An interlaced picture is decoded pass by pass into a second copy.
		return cfg, 2 * bytesPerPixel(cfg.ColorModel), err
	case rewards.JPEG:
		progressive, err := scanJPEG(data)
		if err != nil {
			return cfg, 0, err
		}
		perPixel = 8 // up to four planes, and a copy of them where they are RGB or CMYK
		if progressive {
			perPixel += 4 * 4 // and an int32 for each coefficient
		}
		cfg, err = jpeg.DecodeConfig(bytes.NewReader(data))
		return cfg, perPixel, err // inspect wraps it
	default:
		if err := checkChunks(data); err != nil {
			return cfg, 0, err
		}
		cfg, err = webp.DecodeConfig(bytes.NewReader(data))
		// A lossless picture has 4, twice while a palette is expanded; alpha of a
		// lossy one is such a picture too.
		return cfg, 12, err // inspect wraps it
	}
}

func bytesPerPixel(m color.Model) int64 {
	switch m {
	case color.GrayModel:
		return 1
	case color.Gray16Model:
		return 2
	case color.RGBA64Model, color.NRGBA64Model:
		return 8
	}
	return 4
}

// scanJPEG walks the markers of a JPEG, says whether it is progressive, and
// refuses one with more than maxScans scans. It may count a marker that a
// decoder would not see, never the other way round: inside of entropy-coded data
// a 0xFF is always followed by 0x00 or a restart marker.
func scanJPEG(data []byte) (progressive bool, err error) {
	const (
		sof2 = 0xc2
		rst0 = 0xd0
		eoi  = 0xd9
		sos  = 0xda
	)
	scans := 0
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
		switch marker {
		case sof2:
			progressive = true
		case sos:
			if scans++; scans > maxScans {
				return false, fmt.Errorf("more than %d scans", maxScans)
			}
		}
		if i+2 > len(data) {
			break
		}
		i += int(binary.BigEndian.Uint16(data[i:]))
	}
	return progressive, nil
}

var errChunk = errors.New("a chunk claims more bytes than there are")

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
