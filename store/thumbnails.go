package store

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"runtime"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// StripFrames is the maximum number of frames in the thumbnail of a video, side by side.
const StripFrames = 8

// Sizes of thumbnails.
const (
	thumbSide    = 256 // pixels of the longer side
	thumbQuality = 80
	stripFrames  = StripFrames
	stripSide    = 160
	mediaPerItem = 8 // of a sample
)

// Thumbnails are made within cpuShare of the CPUs while results come: a picture of 512² takes some 6 ms. Of time that was not used
// a burst is kept. When no result has come for idleAfter all that wait are made, and this time is not counted.
const (
	cpuShare  = 1.0 / 100
	cpuBurst  = 20 * time.Millisecond
	idleAfter = 300 * time.Millisecond
)

// picture is one that waits for its thumbnail, with bytes of its own.
type picture struct {
	key   SampleKey
	n     int
	media rewards.Media
	size  int64
	whole int // frames of the original
}

type thumbnail struct {
	key                   SampleKey
	n                     int
	jpeg                  []byte
	width, height, frames int // of the original
}

// Media queues the media of a sample that has a result: their bytes for Config.Keep "full", and their
// thumbnails for "full" and "thumbnails". rest are the bytes that follow the header in the sample's frame.
// failed means that the sample has no score; the pictures of such samples have priority. Media copies what it
// needs before it returns.
func (s *Store) Media(key SampleKey, all []*rewards.Media, rest []byte, failed bool) {
	if s.cfg.Keep == KeepFull {
		s.payload(key, rest)
	}
	if s.cfg.Keep != KeepFull && s.cfg.Keep != KeepThumbnails {
		return
	}
	for i, m := range all[:min(len(all), mediaPerItem)] {
		if m.Kind == rewards.Image || m.Kind == rewards.Video {
			s.picture(key, i, m, failed)
		}
	}
}

func (s *Store) payload(key SampleKey, rest []byte) {
	size := int64(len(rest))
	if size == 0 {
		return
	}
	s.mu.Lock()
	room := !s.closed && len(s.queue) < maxRows && (s.payloads == 0 || s.payloads+size <= maxPayloads)
	if room {
		s.payloads += size // booked before it is copied
	}
	s.mu.Unlock()
	if !room {
		s.metrics.dropped.WithLabelValues("payload").Inc()
		return
	}
	w := work{payload: &payload{key, bytes.Clone(rest)}}
	s.mu.Lock()
	s.push(w)
	s.mu.Unlock()
}

// picture lets one wait for its thumbnail. Where many wait, only those of failed samples join them.
func (s *Store) picture(key SampleKey, n int, m *rewards.Media, failed bool) {
	chosen, whole := excerpt(m)
	size := int64(len(chosen.Data))
	for _, f := range chosen.Frames {
		size += int64(len(f))
	}
	limit := int64(maxPictures)
	if !failed {
		limit /= 2
	}
	s.mu.Lock()
	room := !s.closed && (s.picBytes == 0 || s.picBytes+size <= limit)
	if room {
		s.picBytes += size
	}
	s.mu.Unlock()
	if !room {
		s.metrics.dropped.WithLabelValues("picture").Inc()
		return
	}
	chosen.Data = bytes.Clone(chosen.Data)
	for i, f := range chosen.Frames {
		chosen.Frames[i] = bytes.Clone(f)
	}
	s.mu.Lock()
	s.pictures = append(s.pictures, picture{key: key, n: n, media: chosen, size: size, whole: whole})
	s.mu.Unlock()
	poke(s.paint)
}

// excerpt is what of a media its thumbnail shows: of a video whose frames lie one after the other a few of them.
func excerpt(m *rewards.Media) (_ rewards.Media, frames int) {
	out := rewards.Media{Kind: m.Kind, Layout: m.Layout, Encoding: m.Encoding, DType: m.DType, Shape: slices.Clone(m.Shape), Data: m.Data, FPS: m.FPS}
	switch {
	case m.Encoding == rewards.Frames:
		for _, at := range spread(len(m.Frames)) {
			out.Frames = append(out.Frames, m.Frames[at])
		}
		return out, len(m.Frames)
	case m.Encoding == rewards.Raw && (m.Layout == rewards.THWC || m.Layout == rewards.TCHW) && len(m.Shape) == 4 && m.Shape[0] > 0 && len(m.Data)%m.Shape[0] == 0:
		frames, size := m.Shape[0], len(m.Data)/m.Shape[0]
		if frames <= stripFrames {
			return out, frames
		}
		out.Data = nil
		for _, at := range spread(frames) {
			out.Data = append(out.Data, m.Data[at*size:(at+1)*size]...)
		}
		out.Shape[0] = stripFrames
		return out, frames
	case m.Layout == rewards.CTHW && len(m.Shape) == 4:
		return out, m.Shape[1]
	}
	return out, 1
}

// spread are up to stripFrames of n frames, evenly, the first and the last among them.
func spread(n int) (at []int) {
	if n <= stripFrames {
		for i := range n {
			at = append(at, i)
		}
		return at
	}
	for i := range stripFrames {
		at = append(at, i*(n-1)/(stripFrames-1))
	}
	return at
}

// allowance is the CPU time that thumbnails may take.
type allowance struct {
	share float64 // of one CPU
	left  time.Duration
	at    time.Time // when left was so
}

// spend takes what a thumbnail took, and returns how long the next one has to wait. What is taken while no results come is not owed.
func (a *allowance) spend(took time.Duration, now time.Time, idle bool) (pause time.Duration) {
	a.left = min(a.left+time.Duration(a.share*float64(now.Sub(a.at))), cpuBurst) - took
	a.at = now
	if idle {
		a.left = max(a.left, 0)
	}
	return time.Duration(float64(max(0, -a.left)) / a.share)
}

// paintings makes thumbnails, one at a time, until Close.
func (s *Store) paintings() {
	runtime.LockOSThread() // whose time is measured
	a := allowance{share: cpuShare * float64(runtime.GOMAXPROCS(0)), left: cpuBurst, at: time.Now()}
	for {
		select {
		case <-s.paint:
		case <-s.stop:
			return
		}
		for {
			p, ok := s.nextPicture()
			if !ok {
				break
			}
			began, start := threadTime(), time.Now()
			t, err := s.paintOne(p)
			s.mu.Lock()
			s.picBytes -= p.size
			s.mu.Unlock()
			if err != nil {
				s.metrics.thumbnails.WithLabelValues("failed").Inc()
			} else {
				s.metrics.thumbnails.WithLabelValues("made").Inc()
				s.enqueue(work{thumb: t})
			}
			now, took := time.Now(), threadTime()-began
			if p.media.Encoding.OfVideo() { // another process decoded it
				took = now.Sub(start)
			}
			if pause := a.spend(took, now, s.idle()); pause > 0 && !s.rest(pause) {
				return
			}
		}
	}
}

// rest waits until the CPUs may be used again, or no results come any more; false: the store is closed.
func (s *Store) rest(d time.Duration) bool {
	for until := time.Now().Add(d); time.Now().Before(until); {
		if s.idle() {
			return true
		}
		t := time.NewTimer(min(time.Until(until), idleAfter/3))
		select {
		case <-t.C:
		case <-s.stop:
			t.Stop()
			return false
		}
	}
	return true
}

// idle says that no results come.
func (s *Store) idle() bool { return time.Since(time.Unix(0, s.put.Load())) > idleAfter }

func (s *Store) nextPicture() (p picture, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pictures) == 0 {
		s.pictures = nil
		return p, false
	}
	p = s.pictures[0]
	s.pictures[0] = picture{}
	s.pictures = s.pictures[1:]
	return p, true
}

// thumbTime bounds one thumbnail.
const thumbTime = 10 * time.Second

// paintOne makes a thumbnail. What cannot be decoded has none; its scorers have said so.
func (s *Store) paintOne(p picture) (*thumbnail, error) {
	ctx, cancel := context.WithTimeout(context.Background(), thumbTime)
	defer cancel()
	p.media.SetDecoder(s.decoder)
	frames := rewards.AllFrames()
	if p.media.Encoding.OfVideo() {
		frames = rewards.EvenFrames(stripFrames)
	}
	px, giveBack, err := p.media.BorrowFrames(ctx, frames)
	if err != nil {
		return nil, err
	}
	defer p.media.Forget()
	defer giveBack()
	if px.Numbers != nil {
		p.whole = px.Total
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, stripOf(px.Pixels), &jpeg.Options{Quality: thumbQuality}); err != nil {
		return nil, err
	}
	return &thumbnail{p.key, p.n, out.Bytes(), px.Width, px.Height, max(p.whole, 1)}, nil
}

// stripOf is a picture no larger than thumbSide, or the frames of a video side by side.
func stripOf(px *rewards.Pixels) *image.RGBA {
	side := thumbSide
	shown := []int{0}
	if px.Count > 1 {
		side, shown = stripSide, spread(px.Count)
	}
	width, height := media.Fit(px.Width, px.Height, side)
	strip := image.NewRGBA(image.Rect(0, 0, width*len(shown), height))
	for k, f := range shown {
		shrink(strip, image.Rect(k*width, 0, (k+1)*width, height), px.Frame(f), px.Width, px.Height)
	}
	return strip
}

// shrink writes a frame of interleaved RGB into at, which is no larger: each pixel is the mean of those that it stands for. It runs on
// the caller's thread, whose time is measured; media.Resize uses all CPUs.
func shrink(out *image.RGBA, at image.Rectangle, rgb []byte, width, height int) {
	for y := range at.Dy() {
		top, bottom := y*height/at.Dy(), (y+1)*height/at.Dy()
		for x := range at.Dx() {
			left, right := x*width/at.Dx(), (x+1)*width/at.Dx()
			var r, g, b int
			for row := top; row < bottom; row++ {
				line := rgb[3*(row*width+left) : 3*(row*width+right)]
				for ; len(line) >= 3; line = line[3:] {
					r, g, b = r+int(line[0]), g+int(line[1]), b+int(line[2])
				}
			}
			n := (bottom - top) * (right - left)
			to := out.Pix[out.PixOffset(at.Min.X+x, at.Min.Y+y):][:4]
			to[0], to[1], to[2], to[3] = byte((r+n/2)/n), byte((g+n/2)/n), byte((b+n/2)/n), 255 //nolint:gosec // means of bytes
		}
	}
}
