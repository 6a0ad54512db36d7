package rewards

import (
	"context"
	"errors"
	"fmt"
	"image"
	"slices"
	"sync"
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
// encoded picture; Frames is a video as one encoded picture per frame; MP4, WebM and
// GIF are files of videos, WAV and FLAC of audio.
const (
	Raw    Encoding = "raw"
	JPEG   Encoding = "jpeg"
	PNG    Encoding = "png"
	WebP   Encoding = "webp"
	Frames Encoding = "frames"
	MP4    Encoding = "mp4"
	WebM   Encoding = "webm"
	GIF    Encoding = "gif"
	WAV    Encoding = "wav"
	FLAC   Encoding = "flac"
)

// IsFile reports whether e is that of a video's or a sound's file: MP4, WebM, GIF, WAV or FLAC.
func (e Encoding) IsFile() bool { return e.OfVideo() || e == WAV || e == FLAC }

// OfVideo reports whether e is that of a video's file: MP4, WebM or GIF.
func (e Encoding) OfVideo() bool { return e == MP4 || e == WebM || e == GIF }

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
	// Kind says what it is, Encoding how its bytes are to be read.
	Kind     Kind
	Layout   Layout // of a raw image or video; free text for latents ("CHW", "CTHW")
	Encoding Encoding
	// DType is the safetensors name of the element type of Data: "U8", "F16", "F32", …
	DType string
	// Shape holds the sizes of the axes of Layout. For an encoded picture or a file it is [len(Data)].
	Shape []int
	// Data holds a raw tensor (little endian, row major), one encoded picture or one file.
	Data []byte
	// Frames holds the encoded pictures of a video whose Encoding is Frames.
	Frames [][]byte
	// FPS is the frame rate of a video, SampleRate the rate of audio in Hz; 0: unknown.
	FPS        float64
	SampleRate int

	decoder Decoder
	decoded *decodeState
}

// decodeState is what has become of a media's pixels.
type decodeState struct {
	decoding chan struct{} // capacity 1: whoever decodes, or looks whether to, has put one in

	mu      sync.Mutex // guards what follows; nobody waits for anything with it
	done    bool
	pixels  *Pixels // nil: not decoded, not decodable, or with the keeper
	keeper  Keeper  // has the pixels while nobody reads them; nil: there is none
	readers int
	err     error
	chosen  map[string]*decodeState // of some frames of a file, by the choice
}

func newDecodeState() *decodeState { return &decodeState{decoding: make(chan struct{}, 1)} }

// Decoder turns an image or video into pixels. Package media has the one that
// ships; a worker installs it with SetDecoder.
type Decoder interface {
	// Decode returns the pixels of m, or an error of class BadInput for content
	// that nobody can decode and of class Timeout or Cancelled when ctx ended first.
	Decode(ctx context.Context, m *Media) (*Pixels, error)
}

// Chooser is a Decoder that decodes some frames of a video's file into less memory than all.
type Chooser interface {
	Decoder
	// DecodeFrames is Decode of the frames that are chosen, whose numbers are in Pixels.Numbers.
	DecodeFrames(ctx context.Context, m *Media, frames FrameChoice) (*Pixels, error)
}

// Keeper is the memory that a decoder has booked for pixels. The Media that they are of
// calls it; a decoder that books nothing has none.
type Keeper interface {
	// Park says that nobody reads the pixels for the time being. The keeper may drop them,
	// so that others have their memory.
	Park(px *Pixels)
	// Take returns the pixels that were parked, to be read again; nil: they were dropped.
	Take() *Pixels
	// Release gives the memory back for good. Nobody reads the pixels after it.
	Release()
}

// ErrNoDecoder is returned by Pixels on a media no decoder was installed for.
var ErrNoDecoder = errors.New("no decoder installed for this media")

// SetDecoder installs d. It is called by the worker before any scorer sees the
// sample and must not run concurrently with Pixels.
func (m *Media) SetDecoder(d Decoder) {
	m.decoder = d
	m.decoded = newDecodeState()
}

// Pixels is Borrow until the call of the component that ctx is of returns, however that
// ends. Outside of a component, as in a test, the pixels stay as long as the media, and
// count for no budget.
func (m *Media) Pixels(ctx context.Context) (*Pixels, error) {
	px, giveBack, err := m.Borrow(ctx)
	if err != nil {
		return nil, err
	}
	m.decoded.stay(ctx, px, giveBack)
	return px, nil
}

// PixelsOf is BorrowFrames until the call of the component that ctx is of returns, as Pixels is of Borrow.
func (m *Media) PixelsOf(ctx context.Context, frames FrameChoice) (View, error) {
	v, st, giveBack, err := m.borrowFrames(ctx, frames)
	if err != nil {
		return View{}, err
	}
	st.stay(ctx, v.Pixels, giveBack)
	return v, nil
}

// Borrow decodes the media, at most once while its pixels are kept, and returns the same
// read-only pixels to every component of the sample. A caller whose context ends while
// another decodes gets its own context's error; a decoding that was cut short by its
// caller's context is done again by the next caller.
//
// The memory stays booked until everybody has called giveBack, which may be called twice.
// Who waits for something else than memory to decode into, an engine or another executor,
// gives the pixels back before it does; others could wait for that memory.
func (m *Media) Borrow(ctx context.Context) (px *Pixels, giveBack func(), err error) {
	if m.decoder == nil {
		return nil, nil, fmt.Errorf("%w: %w", Internal, ErrNoDecoder)
	}
	return m.decoded.borrow(ctx, func() (*Pixels, error) { return m.decoder.Decode(ctx, m) })
}

// BorrowFrames is Borrow for who looks at some frames. Of a video's file only those are kept where the decoder
// can, once for all components with the same choice; of all else the whole is decoded, which costs no more
// (raw), or is what the other components look at. A choice that has no frame is BadInput.
func (m *Media) BorrowFrames(ctx context.Context, frames FrameChoice) (v View, giveBack func(), err error) {
	v, _, giveBack, err = m.borrowFrames(ctx, frames)
	return v, giveBack, err
}

func (m *Media) borrowFrames(ctx context.Context, frames FrameChoice) (v View, st *decodeState, giveBack func(), err error) {
	var px *Pixels
	d, can := m.decoder.(Chooser)
	if can && m.Encoding.OfVideo() && !frames.all() {
		st = m.decoded.of(frames)
		px, giveBack, err = st.borrow(ctx, func() (*Pixels, error) { return d.DecodeFrames(ctx, m, frames) })
	} else {
		st = m.decoded
		px, giveBack, err = m.Borrow(ctx)
	}
	if err != nil {
		return View{}, nil, nil, err
	}
	if v, err = frames.view(m, px); err != nil {
		giveBack()
		return View{}, nil, nil, err
	}
	return v, st, giveBack, nil
}

// of is the state of some frames.
func (st *decodeState) of(frames FrameChoice) *decodeState {
	st.mu.Lock()
	defer st.mu.Unlock()
	key := frames.String()
	chosen := st.chosen[key]
	if chosen == nil {
		if st.chosen == nil {
			st.chosen = make(map[string]*decodeState, 1)
		}
		chosen = newDecodeState()
		st.chosen[key] = chosen
	}
	return chosen
}

// borrow returns the pixels of a state, decoded if need be.
func (st *decodeState) borrow(ctx context.Context, decode func() (*Pixels, error)) (px *Pixels, giveBack func(), err error) {
	if err := st.begin(ctx); err != nil {
		return nil, nil, fmt.Errorf("waiting for the pixels: %w", err)
	}
	defer func() { <-st.decoding }()
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.ready() { // then nobody reads, and nobody gives back meanwhile
		st.pixels, st.err = st.without(decode)
		st.done = st.err == nil || ctx.Err() == nil
	}
	if st.err != nil || st.pixels == nil {
		return nil, nil, st.err
	}
	st.readers++
	reader := ReaderOf(ctx)
	reader.borrows(1)
	return st.pixels, sync.OnceFunc(func() {
		reader.borrows(-1)
		st.giveBack()
	}), nil
}

// stay puts giving back off until the call of the component that ctx is of returns.
func (st *decodeState) stay(ctx context.Context, px *Pixels, giveBack func()) {
	if r := ReaderOf(ctx); r == nil {
		st.pin(px)
	} else if !r.keep(st, giveBack) {
		giveBack() // it has them already
	}
}

// begin waits until nobody decodes. Who decodes may wait for an executor meanwhile, and so nobody
// waits here with one.
func (st *decodeState) begin(ctx context.Context) error {
	select {
	case st.decoding <- struct{}{}:
		return nil
	default:
	}
	begun := false
	err := Aside(ctx, func() {
		select {
		case st.decoding <- struct{}{}:
			begun = true
		case <-ctx.Done():
		}
	})
	if begun && err != nil {
		<-st.decoding
	}
	if err != nil || !begun {
		return ctx.Err()
	}
	return nil
}

// without decodes without mu, which the caller holds before and after, whether it panics or not.
func (st *decodeState) without(decode func() (*Pixels, error)) (*Pixels, error) {
	st.mu.Unlock()
	defer st.mu.Lock()
	return decode()
}

// ready reports whether there are pixels, or the reason why there are none. The caller holds mu.
func (st *decodeState) ready() bool {
	if st.keeper != nil {
		if st.pixels = st.keeper.Take(); st.pixels == nil {
			st.done = false
		}
		st.keeper = nil
	}
	return st.done
}

// giveBack ends one reading of the pixels. The caller may have an executor for which somebody waits
// who is about to look whether to decode: giving back never waits for that.
func (st *decodeState) giveBack() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.readers--; st.readers > 0 || st.pixels.Keeper == nil {
		return
	}
	st.keeper = st.pixels.Keeper
	st.keeper.Park(st.pixels)
	st.pixels = nil
}

// pin leaves the pixels to a reader that does not say when it has read them.
func (st *decodeState) pin(px *Pixels) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if px.Keeper != nil {
		px.Keeper.Release()
		px.Keeper = nil
	}
}

// Forget gives back what the pixels have booked; asked for again they are decoded again.
// Nobody reads them. The Manager calls it when all components of the sample have returned.
func (m *Media) Forget() {
	if m.decoded != nil {
		m.decoded.forget()
	}
}

func (st *decodeState) forget() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, chosen := range st.chosen {
		chosen.forget()
	}
	if st.keeper != nil {
		st.keeper.Release()
		st.done, st.pixels, st.keeper, st.readers, st.err = false, nil, nil, 0, nil
	}
}

// Reader is one call of a component, which reads pixels.
type Reader struct {
	mu       sync.Mutex
	borrowed int                     // media that it reads
	kept     map[*decodeState]func() // what to give back when it returns
}

type readerKey struct{}

// withReader returns the context of one call of a component. The caller ends the reader when
// the call has returned.
func withReader(ctx context.Context) (context.Context, *Reader) {
	r := new(Reader)
	return context.WithValue(ctx, readerKey{}, r), r
}

// ReaderOf returns the call of a component that ctx is of, or nil.
func ReaderOf(ctx context.Context) *Reader {
	r, _ := ctx.Value(readerKey{}).(*Reader)
	return r
}

// Borrows is how many media the call reads. While it is above 0 the call holds memory, and
// whoever makes it wait for more must not wait for that. Nil reads none.
func (r *Reader) Borrows() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.borrowed
}

func (r *Reader) borrows(n int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.borrowed += n
}

// keep puts off giving back to the end of the call; false: of that media it does already.
func (r *Reader) keep(st *decodeState, giveBack func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept[st] != nil {
		return false
	}
	if r.kept == nil {
		r.kept = make(map[*decodeState]func(), 1)
	}
	r.kept[st] = giveBack
	return true
}

// end gives back what the call kept.
func (r *Reader) end() {
	r.mu.Lock()
	kept := r.kept
	r.kept = nil
	r.mu.Unlock()
	for _, giveBack := range kept {
		giveBack()
	}
}

// Pixels is a decoded picture or video: 8-bit RGB, tight, frame after frame in
// THWC order, read-only.
type Pixels struct {
	// Width and Height are those of every frame, in pixels, 1 or more.
	Width, Height int
	// Count is the number of frames; 1 for an image.
	Count int
	// Numbers are those of the frames in their video, ascending, where some of it were decoded;
	// nil: all were. Total is how many the video has then.
	Numbers []int
	Total   int
	// FPS is the frame rate of a video's file; 0: unknown, or no file.
	FPS float64
	// RGB has Count*Height*Width*3 bytes. It may alias the sample's own buffer.
	RGB []byte
	// Keeper is the decoder's, for the Media; nil: nothing is booked.
	Keeper Keeper
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
