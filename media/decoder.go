package media

import (
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"runtime"
	"time"

	"golang.org/x/image/webp"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/rewards"
)

// Config holds the limits of a Decoder. Keys describes the fields. The zero value of a field takes
// its default.
type Config struct {
	MaxPixels, MaxFrames int
	BudgetBytes          int64

	FFmpeg                   string
	FFmpegTimeout, MaxLength time.Duration
}

// Values of Config.FFmpeg. Any other value is the path of the program.
const (
	FFmpegAuto = "auto"
	FFmpegOff  = "off"
)

// Keys implements keys.Described with the keys of the section pool.decode.
func (c *Config) Keys(k *keys.Set) {
	k.Int(&c.MaxPixels, "max_pixels", 4096*4096, "Maximum width × height of an image or frame, in pixels. A larger image is refused.").Between(1, 1<<30)
	k.Int(&c.MaxFrames, "max_frames", 1024, "Maximum number of frames of a video. A longer video is refused.").Between(1, 1<<20)
	k.Size(&c.BudgetBytes, "budget_bytes", 512<<20, "Maximum memory of running decodings plus pixels in use; further decodings wait. A progressive JPEG of 4096×4096 pixels takes 357 MiB, then 48 MiB. Of a video only the selected frames count.").Min(1 << 20)
	k.Text(&c.FFmpeg, "ffmpeg", FFmpegAuto, "Program that decodes mp4, webm, gif and flac: full path of ffmpeg 5.1 or newer, auto (ffmpeg on PATH) or off. Without ffmpeg these encodings are refused as unsupported_encoding.")
	k.Duration(&c.FFmpegTimeout, "ffmpeg_timeout", time.Minute, "Time limit of ffmpeg for one file. Then ffmpeg is killed.").Between(time.Second, time.Hour)
	k.Duration(&c.MaxLength, "max_length", 10*time.Minute, "Maximum duration of a video or sound in a file.").Between(time.Second, 24*time.Hour)
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	keys.Fill(&c)
	return c
}

// Validate returns an error that joins everything that is wrong with c.
func (c Config) Validate() error { return keys.Validate("media", &c) }

// Decoder decodes the media of samples to pixels, within the limits of a Config. A Decoder is safe
// for concurrent use. One Decoder serves a whole worker, because its budget limits the worker's
// memory.
type Decoder struct {
	cfg    Config
	budget *budget
	player Player        // nil: there is no ffmpeg
	places chan struct{} // has one for each ffmpeg that runs
}

var (
	_ rewards.Chooser  = (*Decoder)(nil)
	_ rewards.Listener = (*Decoder)(nil)
)

// New returns a Decoder without a Player. The error lists everything that is wrong with cfg.
func New(cfg Config) (*Decoder, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Decoder{cfg: cfg, budget: newBudget(cfg.BudgetBytes), places: make(chan struct{}, runtime.NumCPU())}, nil
}

// Booked returns the number of bytes of the budget in use: by running decodings, by pixels that are
// read, and by pixels that are kept for another reader.
func (d *Decoder) Booked() int64 { return d.budget.booked() }

// Decode returns the pixels of an image or video. The memory of the pixels stays booked until their
// Keeper is released; pixels that are the sample's own bytes have no Keeper. The error wraps
// rewards.BadInput for content that cannot be decoded or exceeds a limit,
// rewards.UnsupportedEncoding for the file of a video without a Player, and the error of ctx if ctx
// ended first.
func (d *Decoder) Decode(ctx context.Context, m *rewards.Media) (*rewards.Pixels, error) {
	return d.DecodeFrames(ctx, m, rewards.AllFrames())
}

// DecodeFrames implements rewards.Chooser: of the file of a video the chosen frames are decoded, of
// any other media all frames.
func (d *Decoder) DecodeFrames(ctx context.Context, m *rewards.Media, frames rewards.FrameChoice) (p *rewards.Pixels, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, bad("the %s decoder panicked: %v", m.Encoding, r)
		}
	}()
	if m.Kind != rewards.Image && m.Kind != rewards.Video {
		return nil, bad("a media of kind %q has no pixels", m.Kind)
	}
	switch m.Encoding {
	case rewards.Raw:
		return d.raw(ctx, m)
	case rewards.JPEG, rewards.PNG, rewards.WebP:
		return d.pictures(ctx, m.Encoding, m.Data)
	case rewards.Frames:
		if m.Kind == rewards.Image && len(m.Frames) != 1 {
			return nil, bad("an image with %d frames: send it as a video", len(m.Frames))
		}
		return d.pictures(ctx, "", m.Frames...)
	case rewards.MP4, rewards.WebM, rewards.GIF:
		if m.Kind == rewards.Image {
			return nil, bad("an image with encoding %s: send it as a video", m.Encoding)
		}
		return d.video(ctx, m, frames)
	}
	return nil, bad("encoding %q: want raw, jpeg, png, webp, frames, mp4, webm or gif", m.Encoding)
}

// pictures decodes one or more encoded pictures of one size. An empty encoding
// lets each be what its first bytes say.
func (d *Decoder) pictures(ctx context.Context, want rewards.Encoding, frames ...[]byte) (*rewards.Pixels, error) {
	if len(frames) == 0 {
		return nil, bad("a video without a frame")
	}
	if len(frames) > d.cfg.MaxFrames {
		return nil, bad("%d frames; the limit is %d", len(frames), d.cfg.MaxFrames)
	}
	headers := make([]header, len(frames))
	var scratch int64 // frames are decoded one after another
	for i, data := range frames {
		h, err := d.inspect(ctx, want, data)
		if err != nil {
			return nil, at(i, len(frames), err)
		}
		if h.width != headers[0].width && i > 0 || h.height != headers[0].height && i > 0 {
			return nil, at(i, len(frames), bad("%d×%d where frame 0 has %d×%d", h.width, h.height, headers[0].width, headers[0].height))
		}
		headers[i] = h
		scratch = max(scratch, h.scratch)
	}
	size := headers[0].pixels() * 3
	p := &rewards.Pixels{Width: headers[0].width, Height: headers[0].height, Count: len(frames)}
	err := d.within(ctx, p, size*int64(len(frames)), scratch, func(b *booking) error {
		for i, data := range frames {
			if i > 0 {
				b.reuse(headers[i-1].scratch)
			}
			dst := p.RGB[size*int64(i) : size*int64(i+1)]
			if err := decodeInto(ctx, dst, headers[i], data); err != nil {
				return at(i, len(frames), err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// within has f fill the pixels, of size bytes, and gives it so many more of the budget
// meanwhile. What the pixels take stays booked.
func (d *Decoder) within(ctx context.Context, p *rewards.Pixels, size, scratch int64, f func(*booking) error) error {
	if n := size + scratch; n > d.cfg.BudgetBytes {
		return bad("decoding needs up to %d bytes, more than the budget of %d", n, d.cfg.BudgetBytes)
	}
	booked, err := d.budget.acquire(ctx, size+scratch)
	if err != nil {
		return err
	}
	filled := false
	defer func() {
		if !filled { // it failed or panicked
			booked.Release()
		}
	}()
	p.RGB = make([]byte, size)
	if err := f(booked); err != nil {
		return err
	}
	booked.shrink(size)
	p.Keeper, filled = booked, true
	return nil
}

// decodeInto decodes one picture into dst, which has its size. The decoders of
// the three formats are called by name: what other packages registered with
// package image stays out of reach.
func decodeInto(ctx context.Context, dst []byte, h header, data []byte) error {
	r := &ctxReader{ctx: ctx, data: data, stops: h.scans}
	var img image.Image
	var err error
	switch h.format {
	case rewards.PNG:
		img, err = png.Decode(r)
	case rewards.JPEG:
		img, err = jpeg.Decode(r)
	default:
		img, err = webp.Decode(r)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("while decoding a %s: %w", h.format, ctx.Err())
	}
	if err != nil {
		return bad("this %s cannot be decoded: %w", h.format, err)
	}
	if b := img.Bounds(); b.Dx() != h.width || b.Dy() != h.height {
		return bad("this %s is %d×%d, but its header has %d×%d", h.format, b.Dx(), b.Dy(), h.width, h.height)
	}
	if h.format == rewards.WebP && studioRGB(dst, img) {
		return nil
	}
	writeRGB(dst, img)
	return nil
}

// readBytes bounds one read: of a PNG that is up to 256 KB of pixels, which take 2 ms.
const readBytes = 256

// ctxReader ends a decoding whose caller has left, and lets others compute between two reads. No
// read goes beyond a stop, so that a decoder looks at the context there.
type ctxReader struct {
	ctx   context.Context //nolint:containedctx // io.Reader has no place for one, and the reader lives for one call
	data  []byte
	at    int
	stops []int // ascending
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := rewards.Yield(c.ctx); err != nil {
		return 0, err // decodeInto replaces it
	}
	if c.at == len(c.data) {
		return 0, io.EOF // decoders compare with io.EOF
	}
	for len(c.stops) > 0 && c.stops[0] <= c.at {
		c.stops = c.stops[1:]
	}
	end := len(c.data)
	if len(c.stops) > 0 {
		end = c.stops[0]
	}
	n := copy(p[:min(len(p), readBytes)], c.data[c.at:end])
	c.at += n
	return n, nil
}

// bad is an error of class BadInput.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %w", rewards.BadInput, fmt.Errorf(format, args...))
}

// at names the frame where there are several.
func at(i, n int, err error) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("frame %d of %d: %w", i, n, err)
}
