package rewards

import (
	"context"
	"errors"
	"fmt"
	"image"
	"slices"
	"sync"
)

// Kind is the kind of a Media.
type Kind string

// The kinds of media.
const (
	Image  Kind = "image"
	Video  Kind = "video"
	Latent Kind = "latent"
	Audio  Kind = "audio"
)

// Encoding is the format of Data or Frames.
type Encoding string

// The encodings. Raw is an uncompressed tensor; JPEG, PNG and WebP are one encoded picture; Frames
// is a video as one encoded picture for each frame; MP4, WebM and GIF are video files; WAV and FLAC
// are audio files.
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

// IsFile reports whether e is a video or audio file: MP4, WebM, GIF, WAV or FLAC.
func (e Encoding) IsFile() bool { return e.OfVideo() || e == WAV || e == FLAC }

// OfVideo reports whether e is a video file: MP4, WebM or GIF.
func (e Encoding) OfVideo() bool { return e == MP4 || e == WebM || e == GIF }

// Layout lists the axes of a raw tensor, slowest first: T frames, C channels, H rows, W columns. It
// is always explicit and never guessed from a shape.
type Layout string

// The layouts.
const (
	HWC  Layout = "HWC"
	CHW  Layout = "CHW"
	THWC Layout = "THWC"
	TCHW Layout = "TCHW"
	CTHW Layout = "CTHW"
)

// Media is one image, video, latent or audio clip of a sample.
type Media struct {
	// Kind is the kind of the media; Encoding is the format of its bytes.
	Kind     Kind
	Layout   Layout // set for a raw image or video; free text for latents ("CHW", "CTHW")
	Encoding Encoding
	// DType is the safetensors name of the element type of Data: "U8", "F16", "F32", …
	DType string
	// Shape holds the sizes of the axes of Layout. For an encoded picture or a file, Shape is
	// [len(Data)].
	Shape []int
	// Data holds a raw tensor (little endian, row major), one encoded picture or one file.
	Data []byte
	// Frames holds the encoded pictures of a video whose Encoding is Frames.
	Frames [][]byte
	// FPS is the frame rate of a video, and SampleRate the rate of audio in Hz. 0 means unknown.
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

// Decoder turns an image or video into pixels. Package media contains the implementation; a worker
// installs it with SetDecoder.
type Decoder interface {
	// Decode returns the pixels of m. The error has the class BadInput if the content cannot be
	// decoded, and Timeout or Cancelled if ctx ended first.
	Decode(ctx context.Context, m *Media) (*Pixels, error)
}

// Chooser is a Decoder that can decode selected frames of a video file, with less memory than for
// all frames.
type Chooser interface {
	Decoder
	// DecodeFrames decodes the selected frames, as Decode does; Pixels.Numbers holds their indices.
	DecodeFrames(ctx context.Context, m *Media, frames FrameChoice) (*Pixels, error)
}

// Keeper is the memory that a decoder has reserved for pixels. The Media of the pixels calls the
// Keeper. A decoder that reserves no memory has no Keeper.
type Keeper interface {
	// Park reports that the pixels have no readers for now. The keeper may drop the pixels to free
	// their memory.
	Park(px *Pixels)
	// Take returns the parked pixels for reading, or nil if they were dropped.
	Take() *Pixels
	// Release frees the memory for good. The pixels must not be read afterwards.
	Release()
}

// ErrNoDecoder is wrapped by the errors of Pixels, Borrow and BorrowSound if no suitable decoder is
// installed.
var ErrNoDecoder = errors.New("no decoder installed for this media")

// SetDecoder installs d. A worker calls SetDecoder before any scorer gets the sample. It must not
// run concurrently with the methods that decode.
func (m *Media) SetDecoder(d Decoder) {
	m.decoder = d
	m.decoded = newDecodeState()
}

// Pixels is like Borrow, but gives the pixels back when the call of ctx's component returns.
// Outside a component, as in a test, the pixels stay valid as long as the media, and do not count
// towards the memory budget.
func (m *Media) Pixels(ctx context.Context) (*Pixels, error) {
	px, giveBack, err := m.Borrow(ctx)
	if err != nil {
		return nil, err
	}
	m.decoded.stay(ctx, px, giveBack)
	return px, nil
}

// PixelsOf is like BorrowFrames, but gives the pixels back when the call of ctx's component
// returns.
func (m *Media) PixelsOf(ctx context.Context, frames FrameChoice) (View, error) {
	v, st, giveBack, err := m.borrowFrames(ctx, frames)
	if err != nil {
		return View{}, err
	}
	st.stay(ctx, v.Pixels, giveBack)
	return v, nil
}

// Borrow decodes the media and returns the same read-only pixels to every component of the sample.
// The media is decoded only once while its pixels are kept. A caller whose context ends while
// another caller decodes gets the error of its own context. If a decoding ends early because of its
// caller's context, the next caller decodes again.
//
// The memory stays reserved until every caller has called giveBack, which may be called twice. A
// caller that waits for anything other than memory for decoding, such as an engine or another
// executor, must give the pixels back before the wait, because others may wait for that memory.
func (m *Media) Borrow(ctx context.Context) (px *Pixels, giveBack func(), err error) {
	if m.decoder == nil {
		return nil, nil, fmt.Errorf("%w: %w", Internal, ErrNoDecoder)
	}
	return m.decoded.borrow(ctx, func() (*Pixels, error) { return m.decoder.Decode(ctx, m) })
}

// BorrowFrames is like Borrow for selected frames. For a video file, if the decoder is a Chooser,
// only the selected frames are decoded, once for all components with the same choice. Otherwise the
// whole media is decoded. A choice without any frame is an error of class BadInput.
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

// Forget frees the memory of the pixels; a later call decodes them again. Nobody may read the
// pixels during the call. The Manager calls Forget when all components of the sample have returned.
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

// Reader is one call of a component that reads pixels.
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

// ReaderOf returns the Reader of ctx, or nil if ctx does not belong to the call of a component.
func ReaderOf(ctx context.Context) *Reader {
	r, _ := ctx.Value(readerKey{}).(*Reader)
	return r
}

// Borrows returns the number of media that the call reads. While the number is above 0, the call
// holds memory, and must not be made to wait for more. Borrows returns 0 for a nil Reader.
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

// Pixels is a decoded picture or video: 8-bit RGB without padding, frame after frame in THWC order,
// read-only.
type Pixels struct {
	// Width and Height are the size of every frame, in pixels. Both are at least 1.
	Width, Height int
	// Count is the number of frames. It is 1 for an image.
	Count int
	// Numbers holds the indices of the frames in their video, ascending, if only some frames were
	// decoded; it is nil if all were. Total is then the number of frames of the video.
	Numbers []int
	Total   int
	// FPS is the frame rate of a video file. It is 0 if the rate is unknown or the media is not a
	// file.
	FPS float64
	// RGB has Count*Height*Width*3 bytes. RGB may alias the sample's own buffer.
	RGB []byte
	// Keeper is set by the decoder, for the Media. It is nil if no memory is reserved.
	Keeper Keeper
}

// Frame returns the RGB bytes of frame i in HWC order.
func (p *Pixels) Frame(i int) []byte {
	n := p.Width * p.Height * 3
	return slices.Clip(p.RGB[i*n : (i+1)*n])
}

// Image returns a copy of frame i as an opaque NRGBA picture, for package imaging.
func (p *Pixels) Image(i int) *image.NRGBA {
	src := p.Frame(i)
	img := image.NewNRGBA(image.Rect(0, 0, p.Width, p.Height))
	for s, d := 0, 0; s < len(src); s, d = s+3, d+4 {
		img.Pix[d], img.Pix[d+1], img.Pix[d+2], img.Pix[d+3] = src[s], src[s+1], src[s+2], 255
	}
	return img
}
