package media

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// FFmpegPath returns the path of the ffmpeg that the configuration selects, or "" if ffmpeg is off or auto
// finds none. The error is a path that is not absolute.
func (c Config) FFmpegPath() (string, error) {
	switch name := c.FFmpeg; name {
	case FFmpegOff:
		return "", nil
	case FFmpegAuto, "":
		path, err := exec.LookPath("ffmpeg")
		if err != nil {
			return "", nil //nolint:nilerr // there is none, and that is no error
		}
		return path, nil
	default:
		if !filepath.IsAbs(name) {
			return "", fmt.Errorf("pool.decode.ffmpeg: %q, want %s, %s or a full path", name, FFmpegAuto, FFmpegOff)
		}
		return name, nil
	}
}

// Player runs ffmpeg on an untrusted file, in a separate process. The implementation is in package
// media/ffmpeg.
type Player interface {
	// Play starts ffmpeg with the arguments, in which Input is the name of the file, and calls read with its
	// standard output. Play returns when the process has ended. Play kills the process when ctx ends or when
	// read returns an error, and returns the error of read; for ErrEnough Play returns nil. The error is of
	// class rewards.BadInput if ffmpeg refuses the file.
	Play(ctx context.Context, p Playing, read func(out io.Reader) error) error
}

// Playing is the input of one run of ffmpeg.
type Playing struct {
	File []byte
	Args []string
	// Memory limits the address space of the process, in bytes. Time limits its CPU time; the context of Play
	// limits the elapsed time.
	Memory int64
	Time   time.Duration
}

// Input is the name of the file in the arguments of a Playing.
const Input = "/proc/self/fd/3"

// ErrEnough is returned by a reader of a Playing that needs no more output.
var ErrEnough = errors.New("read enough")

// container is one kind of file.
type container struct {
	format string // ffmpeg's name of the demuxer
	// codecs are the names of what may be inside, decoders the names of what ffmpeg may decode it with.
	codecs, decoders []string
	options          []string // of the demuxer
}

// containers are the files of videos and sounds that ffmpeg reads here, and what may be inside: what it could
// read beside has never been asked for, and each decoder is code that strangers' bytes reach.
//
//nolint:gochecknoglobals // a table
var containers = map[rewards.Encoding]container{
	rewards.MP4: {
		format: "mov", codecs: []string{"h264", "hevc", "av1", "vp9", "mpeg4"},
		decoders: []string{"h264", "hevc", "libdav1d", "libaom-av1", "av1", "vp9", "libvpx-vp9", "mpeg4"},
		options:  []string{"-enable_drefs", "0", "-use_absolute_path", "0"}, // no other file is opened
	},
	rewards.WebM: {
		format: "matroska", codecs: []string{"vp8", "vp9", "av1"},
		decoders: []string{"vp8", "vp9", "libvpx", "libvpx-vp9", "libdav1d", "libaom-av1", "av1"},
	},
	rewards.GIF:  {format: "gif", codecs: []string{"gif"}, decoders: []string{"gif"}},
	rewards.FLAC: {format: "flac", codecs: []string{"flac"}, decoders: []string{"flac"}},
}

// input are the arguments that open the file: as that format and no other, with those decoders and no others,
// and nothing else is opened on its behalf.
func (d *Decoder) input(c container) []string {
	return slices.Concat(
		[]string{"-nostdin", "-hide_banner", "-v", "error", "-xerror", "-threads", "1", "-filter_threads", "1"},
		c.options,
		[]string{
			"-noautorotate", "-max_pixels", strconv.Itoa(2 * d.cfg.MaxPixels), // rounded up to blocks inside
			"-protocol_whitelist", "file", "-format_whitelist", c.format, "-codec_whitelist", strings.Join(c.decoders, ","),
			"-f", c.format, "-i", Input,
		})
}

// SetPlayer sets the Player that decodes the files of videos and FLAC sounds. Without a Player these files are
// refused. SetPlayer must be called before the first Decode.
func (d *Decoder) SetPlayer(p Player) { d.player = p }

// errNoPlayer is why a file is refused where there is no ffmpeg.
const errNoPlayer = "%w: a file of encoding %s needs ffmpeg, which was not found: install ffmpeg 5.1 or newer on this machine, " +
	"or set pool.decode.ffmpeg to its path; raw frames need no ffmpeg"

// play runs ffmpeg when there is a place for it.
func (d *Decoder) play(ctx context.Context, e rewards.Encoding, file []byte, args []string, read func(out io.Reader) error) error {
	if d.player == nil {
		return rewards.Permanent(rewards.BlameWorker, fmt.Errorf(errNoPlayer, rewards.UnsupportedEncoding, e))
	}
	if err := d.place(ctx); err != nil {
		return fmt.Errorf("waiting for one of %d decodings of files to end: %w", cap(d.places), err)
	}
	defer func() { <-d.places }()
	own, cancel := context.WithTimeout(ctx, d.cfg.FFmpegTimeout)
	defer cancel()
	// 1 GiB for ffmpeg and its libraries, and 17 pictures of the largest size that an H.264 decoder may keep.
	memory := int64(1<<30) + 64*int64(d.cfg.MaxPixels)
	err := d.player.Play(own, Playing{File: file, Args: args, Memory: memory, Time: d.cfg.FFmpegTimeout}, read)
	if err != nil && ctx.Err() == nil && own.Err() != nil {
		return bad("decoding this %s took longer than pool.decode.ffmpeg_timeout of %v", e, d.cfg.FFmpegTimeout)
	}
	return err
}

// place waits for a place of those that bound how many children run. Who has one waits for nothing else.
func (d *Decoder) place(ctx context.Context) error {
	select {
	case d.places <- struct{}{}:
		return nil
	default:
	}
	has := false
	err := rewards.Aside(ctx, func() {
		select {
		case d.places <- struct{}{}:
			has = true
		case <-ctx.Done():
		}
	})
	if has && err != nil {
		<-d.places
	}
	if err == nil && !has {
		err = ctx.Err()
	}
	return err
}

// track is what a file says of its first video, before anything is decoded.
type track struct {
	width, height, packets int
	fps                    float64
}

// video decodes the chosen frames of a file. Its packets are counted first, without decoding one, so that what the
// frames take is known and booked.
func (d *Decoder) video(ctx context.Context, m *rewards.Media, frames rewards.FrameChoice) (*rewards.Pixels, error) {
	if err := sniffed(m.Encoding, m.Data); err != nil {
		return nil, err
	}
	c := containers[m.Encoding]
	t, err := d.probe(ctx, m, c)
	if err != nil {
		return nil, err
	}
	p := &rewards.Pixels{Width: t.width, Height: t.height, FPS: t.fps}
	fps := m.FPS
	if fps == 0 {
		fps = t.fps
	}
	wanted, err := frames.Of(t.packets, fps)
	if err != nil {
		return nil, err
	}
	size := int64(t.width) * int64(t.height) * 3
	err = d.within(ctx, p, size*int64(len(wanted)), 0, func(*booking) error {
		f := film{decoder: d, media: m, container: c, track: t, into: p}
		total, err := f.shoot(ctx, wanted, frames.First())
		if err == nil && frames.NeedsCount() && total < t.packets { // some packets are no frames
			if wanted, err = frames.Of(total, fps); err == nil {
				total, err = f.shoot(ctx, wanted, false)
			}
		}
		if p.Total = total; frames.First() {
			p.Total = t.packets
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if frames != rewards.AllFrames() {
		p.Numbers = wanted[:p.Count]
	}
	return p, nil
}

// film is a file whose frames are decoded.
type film struct {
	decoder   *Decoder
	media     *rewards.Media
	container container
	track     track
	into      *rewards.Pixels
}

// shoot decodes the file and keeps the frames of the numbers that are wanted. It returns how many frames there are; with
// first it ends after one.
func (f *film) shoot(ctx context.Context, wanted []int, first bool) (total int, err error) {
	p := f.into
	// The flags of swscale are those of PyAV's to_ndarray: the same pixels. Pad and crop change nothing: they refuse a picture
	// that is larger or smaller than the first, which an encoder of ffmpeg 5 would cut or read beyond.
	filter := fmt.Sprintf("scale=flags=bilinear,format=rgb24,pad=%d:%d,crop=%[1]d:%[2]d:0:0:exact=1", p.Width, p.Height)
	args := append(f.decoder.input(f.container), "-map", "0:V:0", "-vf", filter, "-fps_mode", "passthrough", "-autoscale", "0", "-f", "image2pipe",
		"-c:v", "ppm", "-threads", "1", "pipe:1")
	p.Count = 0
	err = f.decoder.play(ctx, f.media.Encoding, f.media.Data, args, func(out io.Reader) error {
		r := bufio.NewReaderSize(out, 1<<16)
		for {
			err := f.frame(r, total, wanted)
			if errors.Is(err, errNoFrame) {
				return nil
			}
			if err != nil {
				return err
			}
			if total++; first {
				return ErrEnough
			}
		}
	})
	if err == nil && p.Count == 0 {
		err = bad("no frame of this %s can be decoded", f.media.Encoding)
	}
	return total, err
}

// errNoFrame is the end of the frames.
var errNoFrame = errors.New("no more frames")

// frame reads the frame of a number, if there is one, and keeps it where it is the next that is wanted.
func (f *film) frame(r *bufio.Reader, number int, wanted []int) error {
	p, encoding := f.into, f.media.Encoding
	width, height, err := ppmHeader(r)
	switch {
	case errors.Is(err, io.EOF):
		return errNoFrame
	case err != nil:
		return err
	case width != p.Width || height != p.Height:
		return bad("frame %d of this %s is %d×%d, but its header has %d×%d", number, encoding, width, height, p.Width, p.Height)
	case number >= f.track.packets:
		return bad("this %s has more frames than the %d packets of its header", encoding, f.track.packets)
	}
	size := p.Width * p.Height * 3
	if p.Count < len(wanted) && wanted[p.Count] == number {
		_, err = io.ReadFull(r, p.RGB[p.Count*size:(p.Count+1)*size])
		p.Count++
	} else {
		_, err = io.CopyN(io.Discard, r, int64(size))
	}
	if err != nil {
		return bad("frame %d of this %s ends early: %w", number, encoding, err)
	}
	return nil
}

// ppmHeader reads the header of a PPM picture as ffmpeg writes it; io.EOF: there is none.
func ppmHeader(r *bufio.Reader) (width, height int, err error) {
	if _, err := r.Peek(1); err != nil {
		return 0, 0, io.EOF
	}
	var lines [3]string
	for i := range lines {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, 0, bad("ffmpeg's output ends within the header of a frame")
		}
		lines[i] = string(bytes.TrimSpace(line))
	}
	w, h, _ := strings.Cut(lines[1], " ")
	width, errW := strconv.Atoi(w)
	height, errH := strconv.Atoi(h)
	if lines[0] != "P6" || lines[2] != "255" || errW != nil || errH != nil {
		return 0, 0, bad("ffmpeg's output has a frame that begins %q", lines)
	}
	return width, height, nil
}

// probe reads what the file says of its first video and counts its packets, up to the limits.
func (d *Decoder) probe(ctx context.Context, m *rewards.Media, c container) (track, error) {
	args := append(d.input(c), "-map", "0:V:0", "-c", "copy", "-copyinkf", "-f", "framecrc", "pipe:1")
	l := listing{of: m.Encoding, limits: d.cfg}
	if err := d.play(ctx, m.Encoding, m.Data, args, l.read); err != nil {
		return track{}, err
	}
	return l.track(d, c)
}

// listing is what ffmpeg's framecrc says of a file.
type listing struct {
	of     rewards.Encoding
	limits Config

	codec         string
	width, height int
	tick          float64 // seconds
	packets       int
	first, last   float64 // when the first frame is shown and the last is over, in ticks
	lastBegins    float64
	timed         bool
}

// read takes the lines as they come: lines of a name and a value, then one for each packet.
func (l *listing) read(out io.Reader) error {
	r := bufio.NewReaderSize(out, 4096)
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return bad("ffmpeg's description of this %s: %w", l.of, err)
		}
		if name, value, ok := strings.Cut(string(line), ":"); ok && line[0] == '#' {
			l.header(strings.TrimSuffix(strings.TrimPrefix(name, "#"), " 0"), strings.TrimSpace(value))
			continue
		}
		l.packet(strings.Split(string(line), ","))
		if l.packets > l.limits.MaxFrames {
			return bad("this %s has more frames than pool.decode.max_frames of %d", l.of, l.limits.MaxFrames)
		}
		if err := l.tooLong(); err != nil {
			return err
		}
	}
}

func (l *listing) header(name, value string) {
	switch name {
	case "codec_id":
		l.codec = value
	case "dimensions":
		w, h, _ := strings.Cut(value, "x")
		l.width, _ = strconv.Atoi(w) // 0 is refused later
		l.height, _ = strconv.Atoi(h)
	case "tb":
		num, den, _ := strings.Cut(value, "/")
		n, _ := strconv.ParseFloat(num, 64)
		d, _ := strconv.ParseFloat(den, 64)
		if n > 0 && d > 0 {
			l.tick = n / d
		}
	}
}

// packet reads "stream, decoded at, shown at, duration, size, checksum".
func (l *listing) packet(fields []string) {
	l.packets++
	if len(fields) < 4 {
		return
	}
	at, err := strconv.ParseFloat(strings.TrimSpace(fields[2]), 64)
	if err != nil {
		return // it has no time
	}
	lasts, _ := strconv.ParseFloat(strings.TrimSpace(fields[3]), 64)
	if !l.timed {
		l.first, l.last, l.lastBegins, l.timed = at, at, at, true
	}
	l.first, l.lastBegins = min(l.first, at), max(l.lastBegins, at)
	l.last = max(l.last, at+max(lasts, 0))
}

func (l *listing) tooLong() error {
	if seconds := (l.last - l.first) * l.tick; seconds > l.limits.MaxLength.Seconds() {
		return bad("this %s lasts %.0f s or more; pool.decode.max_length is %v", l.of, seconds, l.limits.MaxLength)
	}
	return nil
}

// track holds what was read against the limits.
func (l *listing) track(d *Decoder, c container) (track, error) {
	switch {
	case l.packets == 0 || l.codec == "":
		return track{}, bad("this %s has no video", l.of)
	case !slices.Contains(c.codecs, l.codec):
		return track{}, bad("the video in this %s is coded as %s; want %s", l.of, l.codec, strings.Join(c.codecs, ", "))
	}
	if err := d.checkSize(l.width, l.height); err != nil {
		return track{}, err
	}
	t := track{width: l.width, height: l.height, packets: l.packets}
	if span := (l.lastBegins - l.first) * l.tick; l.packets > 1 && span > 0 {
		t.fps = math.Round(float64(l.packets-1)/span*1e6) / 1e6
	}
	return t, nil
}

// files are how the files of the encodings begin.
//
//nolint:gochecknoglobals // a table
var files = []struct {
	encoding rewards.Encoding
	at       int
	magic    string
}{
	{rewards.MP4, 4, "ftyp"},
	{rewards.WebM, 0, "\x1a\x45\xdf\xa3"},
	{rewards.GIF, 0, "GIF87a"},
	{rewards.GIF, 0, "GIF89a"},
	{rewards.WAV, 8, "WAVE"},
	{rewards.FLAC, 0, "fLaC"},
}

// SniffFile returns the encoding of the file of a video or sound from its first bytes: rewards.MP4, WebM (any
// Matroska file), GIF, WAV or FLAC, or "" for any other content, such as an AVIF or HEIC picture.
func SniffFile(data []byte) rewards.Encoding {
	for _, f := range files {
		if len(data) < f.at+len(f.magic) || string(data[f.at:f.at+len(f.magic)]) != f.magic {
			continue
		}
		switch {
		case f.encoding == rewards.WAV && string(data[:4]) != "RIFF":
		case f.encoding == rewards.MP4 && len(data) >= 12 && slices.Contains([]string{"avif", "avis", "heic", "heix", "mif1", "msf1"}, string(data[8:12])):
		default:
			return f.encoding
		}
	}
	return ""
}

// sniffed refuses a file that does not begin as one of its encoding does, before any program sees it: a playlist
// among others, which names files or addresses.
func sniffed(e rewards.Encoding, data []byte) error {
	if found := SniffFile(data); found != e {
		if found == "" {
			return bad("these %d bytes do not begin as a file of encoding %s does", len(data), e)
		}
		return bad("the bytes are a file of encoding %s, but the sample declares %s", found, e)
	}
	return nil
}
