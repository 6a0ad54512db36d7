package rewards

import (
	"context"
	"errors"
	"fmt"
	"image"
	"slices"
)

// Kind is what a Media is.
type Kind string

// The kinds of media.
const (
	Image  Kind = "image"
	Video  Kind = "video"
	Latent Kind = "latent"
	Audio  Kind = "audio"
)

// Encoding says how Data or Frames hold the content.
type Encoding string

// The encodings. Raw is an uncompressed tensor; JPEG, PNG and WebP are one
// encoded picture; Frames is a video as one encoded picture per frame.
const (
	Raw    Encoding = "raw"
	JPEG   Encoding = "jpeg"
	PNG    Encoding = "png"
	WebP   Encoding = "webp"
	Frames Encoding = "frames"
)

// Layout names the axes of a raw tensor, slowest first: T frames, C channels,
// H rows, W columns. It is always explicit and never guessed from a shape.
type Layout string

// The layouts.
const (
	HWC  Layout = "HWC"
	CHW  Layout = "CHW"
	THWC Layout = "THWC"
	TCHW Layout = "TCHW"
	CTHW Layout = "CTHW"
)

// Media is one image, video, latent or audio of a sample.
type Media struct {
	Kind     Kind
	Layout   Layout // of a raw image or video; free text for latents ("CHW", "CTHW")
	Encoding Encoding
	// DType is the safetensors name of the element type of Data: "U8", "F16", "F32", …
	DType string
	// Shape holds the sizes of the axes of Layout. For an encoded picture it is [len(Data)].
	Shape []int
	// Data holds a raw tensor (little endian, row major) or one encoded picture.
	Data []byte
	// Frames holds the encoded pictures of a video whose Encoding is Frames.
	Frames [][]byte
	// FPS is the frame rate of a video, SampleRate the rate of audio in Hz; 0: unknown.
	FPS        float64
	SampleRate int

	decoder Decoder
	decoded chan *decodeState // capacity 1: the state doubles as its lock
}

type decodeState struct {
	done   bool
	pixels *Pixels
	err    error
}

// Decoder turns an image or video into pixels. Package media has the one that
// ships; a worker installs it with SetDecoder.
type Decoder interface {
	// Decode returns the pixels of m, or an error of class BadInput for content
	// that nobody can decode and of class Timeout or Cancelled when ctx ended first.
	Decode(ctx context.Context, m *Media) (*Pixels, error)
}

// ErrNoDecoder is returned by Pixels on a media no decoder was installed for.
var ErrNoDecoder = errors.New("no decoder installed for this media")

// SetDecoder installs d. It is called by the worker before any scorer sees the
// sample and must not run concurrently with Pixels.
func (m *Media) SetDecoder(d Decoder) {
	m.decoder = d
	m.decoded = make(chan *decodeState, 1)
	m.decoded <- &decodeState{}
}

// Pixels decodes the media at most once and returns the same read-only pixels to
// every term of the sample. A caller whose context ends while another decodes
// gets its own context's error; a decoding that was cut short by its caller's
// context is done again by the next caller.
func (m *Media) Pixels(ctx context.Context) (*Pixels, error) {
	if m.decoder == nil {
		return nil, fmt.Errorf("%w: %w", Internal, ErrNoDecoder)
	}
	var st *decodeState
	select {
	case st = <-m.decoded:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the pixels: %w", ctx.Err())
	}
	defer func() { m.decoded <- st }()
	if !st.done {
		st.pixels, st.err = m.decoder.Decode(ctx, m)
		st.done = st.err == nil || ctx.Err() == nil
	}
	return st.pixels, st.err
}

// Pixels is a decoded picture or video: 8-bit RGB, tight, frame after frame in
// THWC order, read-only.
type Pixels struct {
	Width, Height int
	// Count is the number of frames; 1 for an image.
	Count int
	// RGB has Count*Height*Width*3 bytes. It may alias the sample's own buffer.
	RGB []byte
}

// Frame returns the RGB bytes of frame i in HWC order.
func (p *Pixels) Frame(i int) []byte {
	n := p.Width * p.Height * 3
	return slices.Clip(p.RGB[i*n : (i+1)*n])
}

// Image returns a copy of frame i as an opaque NRGBA picture, the form package
// imaging works on.
func (p *Pixels) Image(i int) *image.NRGBA {
	src := p.Frame(i)
	img := image.NewNRGBA(image.Rect(0, 0, p.Width, p.Height))
	for s, d := 0, 0; s < len(src); s, d = s+3, d+4 {
		img.Pix[d], img.Pix[d+1], img.Pix[d+2], img.Pix[d+3] = src[s], src[s+1], src[s+2], 255
	}
	return img
}
