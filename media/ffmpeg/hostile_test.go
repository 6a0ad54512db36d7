package ffmpeg_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/clip"
)

// canary is a file that nobody may read and an address that nobody may ask.
type canary struct {
	path, url string
	asked     atomic.Int64
}

const secret = "the canary sings"

func newCanary(t *testing.T) *canary {
	t.Helper()
	c := &canary{path: filepath.Join(t.TempDir(), "canary.txt")}
	require.NoError(t, os.WriteFile(c.path, []byte(secret), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.url = fmt.Sprintf("http://%s/clip.mp4", l.Addr())
	done := make(chan struct{})
	go func() { // ends when the listener is closed; the test waits for it
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.asked.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return c
}

// box is one of an MP4 file.
func box(kind string, parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	out := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return append(append(out, kind...), body...)
}

func be32(n ...uint32) (out []byte) {
	for _, v := range n {
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return out
}

// replace changes one place of a file, and fails the test where it is not there.
func replace(t *testing.T, file []byte, at string, offset int, with []byte) []byte {
	t.Helper()
	i := bytes.Index(file, []byte(at))
	require.GreaterOrEqual(t, i, 0, at)
	out := bytes.Clone(file)
	copy(out[i+len(at)+offset:], with)
	return out
}

func part(file []byte, percent int) []byte { return file[:len(file)*percent/100] }

// gifOf is a GIF of some size with so many frames of one pixel.
func gifOf(width, height, frames int) []byte {
	var b bytes.Buffer
	b.WriteString("GIF89a")
	_ = binary.Write(&b, binary.LittleEndian, []uint16{uint16(width), uint16(height)})
	b.Write([]byte{0x80, 0, 0, 0, 0, 0, 255, 255, 255})
	for range frames {
		b.Write([]byte{0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0})
	}
	b.WriteByte(0x3b)
	return b.Bytes()
}

// samples is an MP4 file of so many samples that all are the same one, described by an entry; dref says where its data lie.
func samples(count int, sample, entry, dref []byte) []byte {
	chunks := bytes.Repeat(be32(24+8), count)
	stbl := box("stbl",
		box("stsd", be32(0, 1), entry),
		box("stts", be32(0, 1, uint32(count), 125)),
		box("stsc", be32(0, 1, 1, 1, 1)),
		box("stsz", be32(0, uint32(len(sample)), uint32(count))),
		box("stco", be32(0, uint32(count)), chunks))
	return bytes.Join([][]byte{
		box("ftyp", []byte("isom"), be32(0), []byte("isomisom")),
		box("mdat", sample),
		box("moov",
			box("mvhd", be32(0, 0, 0, 1000, 1000, 1<<16, 1<<24, 0, 0), make([]byte, 36), make([]byte, 24), be32(2)),
			box("trak",
				box("tkhd", be32(3, 0, 0, 1, 0, 1000, 0, 0, 0, 0), make([]byte, 36), be32(64<<16, 48<<16)),
				box("mdia",
					box("mdhd", be32(0, 0, 0, 1000, 1000, 0)),
					box("hdlr", be32(0, 0), []byte("vide"), make([]byte, 12), []byte{0}),
					box("minf", box("vmhd", be32(1, 0, 0)), box("dinf", box("dref", be32(0, 1), dref)), stbl)))),
	}, nil)
}

// keyFrame is one picture of VP9.
func keyFrame(t *testing.T) []byte {
	t.Helper()
	ivf := clip.Make(t, "a.ivf", append(clip.Video(64, 48, 1), "-c:v", "libvpx-vp9")...)
	return ivf[32+12:]
}

// entry describes video of a codec and a size.
func entry(fourcc string, width, height uint16) []byte {
	size := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, width), height)
	return box(fourcc, make([]byte, 6), []byte{0, 1}, make([]byte, 16), size, be32(72<<16, 72<<16, 0), []byte{0, 1}, make([]byte, 32), []byte{0, 24, 255, 255})
}

// changing is a video whose pictures change their size.
func changing(t *testing.T) []byte {
	t.Helper()
	stream := func(size int) []byte {
		return clip.Make(t, "a.h264", append(clip.Video(size, size, 3), "-c:v", "libx264", "-preset", "ultrafast")...)
	}
	path := filepath.Join(t.TempDir(), "both.h264")
	require.NoError(t, os.WriteFile(path, append(stream(32), stream(64)...), 0o600))
	return clip.Make(t, "a.mp4", "-f", "h264", "-i", path, "-c", "copy")
}

type hostile struct {
	encoding rewards.Encoding
	file     []byte
	want     string // of its error
}

func hostiles(t *testing.T, c *canary) map[string]hostile {
	t.Helper()
	encode := func(name string, args ...string) []byte {
		return clip.Make(t, name, append(clip.Video(64, 48, 16), args...)...)
	}
	x264 := []string{"-c:v", "libx264", "-preset", "ultrafast"}
	last := encode("a.mp4", x264...)
	first := encode("a.mp4", append(x264, "-movflags", "faststart")...)
	fragments := encode("a.mp4", append(x264, "-movflags", "frag_keyframe+empty_moov", "-g", "4")...)
	vp9 := encode("a.webm", "-c:v", "libvpx-vp9", "-deadline", "realtime")
	gif := encode("a.gif")
	noise := bytes.Clone(first)
	for i := bytes.Index(noise, []byte("mdat")) + 900; i < len(noise); i += 37 {
		noise[i] ^= byte(i) | 1
	}
	deep := []byte("end!")
	for range 20_000 {
		deep = box("moov", deep[max(0, len(deep)-1<<16):])
	}
	ftyp := box("ftyp", []byte("isom"), be32(0), []byte("isom"))
	key := keyFrame(t)
	huge := bytes.Clone(key) // of 65535 by 65535 pixels: 16 bits each behind 36 others
	huge[4], huge[5], huge[6], huge[7], huge[8] = huge[4]|0x0f, 0xff, 0xef, 0xff, 0xe0|huge[8]&15
	none := make([]byte, 64)
	self := box("url ", be32(1))
	address := append([]byte(c.url), 0)
	alias := append(append(be32(0, 0), []byte(c.path)...), 0)
	const begins = "do not begin as a file of encoding"
	return map[string]hostile{
		// Truncated.
		"mp4 without its index":      {rewards.MP4, part(last, 60), "moov atom not found"},
		"mp4 cut in the last frames": {rewards.MP4, part(first, 95), "cannot decode this file"},
		"mp4 cut in the middle":      {rewards.MP4, part(first, 60), "cannot decode this file"},
		"mp4 cut in its index":       {rewards.MP4, part(first, 5), ""},
		"mp4 of fragments, cut":      {rewards.MP4, part(fragments, 60), "cannot decode this file"},
		"mp4 of a header alone":      {rewards.MP4, ftyp, "moov atom not found"},
		"webm cut in the middle":     {rewards.WebM, part(vp9, 60), "ends early"},
		"webm of a header alone":     {rewards.WebM, vp9[:40], ""},
		"gif cut in the middle":      {rewards.GIF, part(gif, 60), ""},
		"gif of a header alone":      {rewards.GIF, gif[:13], ""},
		"nothing":                    {rewards.MP4, nil, begins},
		// Too many, too large, too long.
		"mp4 of a million frames":           {rewards.MP4, samples(1e6, key, entry("vp09", 64, 48), self), "max_frames"},
		"mp4 of 4 thousand million":         {rewards.MP4, replace(t, samples(4, key, entry("vp09", 64, 48), self), "stsz", 8, be32(1<<32-1)), ""},
		"gif of 2000 frames":                {rewards.GIF, gifOf(8, 8, 2000), "max_frames"},
		"gif of a million frames":           {rewards.GIF, gifOf(8, 8, 1e6), "max_frames"},
		"gif, 65535 wide and high":          {rewards.GIF, gifOf(65535, 65535, 2), ""},
		"mp4, 65535 wide and high":          {rewards.MP4, samples(4, huge, entry("vp09", 65535, 65535), self), ""},
		"mp4, 1 million of frames of 65535": {rewards.MP4, samples(1e6, huge, entry("vp09", 65535, 65535), self), ""},
		"webm, 16368 wide in truth":         {rewards.WebM, clip.Make(t, "a.webm", "-f", "lavfi", "-i", "color=s=16368x1040:r=8", "-frames:v", "1", "-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8"), ""},
		"mp4 of 30 days":                    {rewards.MP4, replace(t, encode("a.mp4", append(x264, "-use_editlist", "0")...), "mdhd", 12, be32(1)), "max_length"},
		"mp4 of changing sizes":             {rewards.MP4, changing(t), "dimensions"},
		// Another codec than may be inside.
		"mp4 of Motion JPEG":      {rewards.MP4, encode("a.mp4", "-c:v", "mjpeg"), "coded as mjpeg"},
		"mp4 of PNG":              {rewards.MP4, encode("a.mp4", "-c:v", "png"), "coded as png"},
		"mp4 of sound alone":      {rewards.MP4, clip.Make(t, "a.mp4", "-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac"), ""},
		"webm of H.264":           {rewards.WebM, encode("a.mkv", x264...), "coded as h264"},
		"webm of FFV1":            {rewards.WebM, encode("a.mkv", "-c:v", "ffv1"), "coded as ffv1"},
		"webm of raw video":       {rewards.WebM, encode("a.mkv", "-c:v", "rawvideo"), "coded as rawvideo"},
		"mp4 of an unknown codec": {rewards.MP4, samples(4, key, entry("xxxx", 64, 48), self), ""},
		// Another file than the sample says.
		"a webm that is called mp4":    {rewards.MP4, vp9, "a file of encoding webm, but the sample declares mp4"},
		"an mp4 that is called webm":   {rewards.WebM, first, "a file of encoding mp4, but the sample declares webm"},
		"a gif that is called webm":    {rewards.WebM, gif, "a file of encoding gif, but the sample declares webm"},
		"an avi that is called mp4":    {rewards.MP4, encode("a.avi"), begins},
		"an mpegts that is called mp4": {rewards.MP4, encode("a.ts"), begins},
		// Files that name files or addresses.
		"HLS of a file":                 {rewards.MP4, []byte("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n" + c.path + "\n#EXT-X-ENDLIST\n"), begins},
		"HLS of an address":             {rewards.WebM, []byte("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n" + c.url + "\n#EXT-X-ENDLIST\n"), begins},
		"concat of a file":              {rewards.MP4, []byte("ffconcat version 1.0\nfile '" + c.path + "'\n"), begins},
		"DASH of an address":            {rewards.MP4, []byte("<?xml version='1.0'?><MPD><Period><BaseURL>" + c.url + "</BaseURL></Period></MPD>"), begins},
		"SDP of an address":             {rewards.GIF, []byte("v=0\nc=IN IP4 127.0.0.1\nm=video 1 RTP/AVP 96\n"), begins},
		"SVG of a file":                 {rewards.GIF, []byte(`<svg><image href="file://` + c.path + `"/></svg>`), begins},
		"HLS that begins as mp4":        {rewards.MP4, append(bytes.Clone(ftyp), ("#EXTM3U\n#EXTINF:1,\n" + c.path + "\n" + c.url + "\n")...), ""},
		"mp4 whose data are an address": {rewards.MP4, samples(4, none, entry("vp09", 64, 48), box("url ", be32(0), address)), ""},
		"mp4 whose data are a file":     {rewards.MP4, samples(4, none, entry("vp09", 64, 48), box("url ", be32(0), []byte("file://"+c.path), []byte{0})), ""},
		"mp4 whose data are an alias":   {rewards.MP4, samples(4, none, entry("vp09", 64, 48), box("alis", alias)), ""},
		"mp4 that refers to a movie":    {rewards.MP4, append(bytes.Clone(ftyp), box("moov", box("rmra", box("rmda", box("rdrf", be32(0), []byte("url "), be32(uint32(len(address))), address))))...), ""},
		// Broken.
		"mp4 of noise":              {rewards.MP4, noise, ""},
		"mp4 of zeros":              {rewards.MP4, append(bytes.Clone(ftyp), make([]byte, 1<<16)...), "moov atom not found"},
		"mp4 of nested boxes":       {rewards.MP4, append(bytes.Clone(ftyp), deep...), ""},
		"mp4 of a box of 2⁶³ bytes": {rewards.MP4, append(bytes.Clone(ftyp), []byte("\x00\x00\x00\x01moov\x7f\xff\xff\xff\xff\xff\xff\xff")...), ""},
		"webm of noise":             {rewards.WebM, append([]byte("\x1a\x45\xdf\xa3"), bytes.Repeat([]byte{0x5a, 0xff, 0x01}, 4096)...), ""},
		"webm of endless nesting":   {rewards.WebM, append([]byte("\x1a\x45\xdf\xa3\x80"), bytes.Repeat([]byte("\x18\x53\x80\x67\x01\xff\xff\xff\xff\xff\xff\xff"), 20_000)...), ""},
	}
}

//nolint:tparallel // the subtest "each" ends when all of its own have, and then it is looked at what they have left
func TestHostileFilesAreRefusedByNameWithinTheirLimits(t *testing.T) {
	t.Parallel()
	c := newCanary(t)
	d := decoder(t, media.Config{FFmpegTimeout: 30 * time.Second})
	all := hostiles(t, c)
	require.GreaterOrEqual(t, len(all), 40)
	t.Run("each", func(t *testing.T) {
		for name, h := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				px, err := d.Decode(t.Context(), video(h.encoding, h.file))
				if err == nil {
					t.Fatalf("decoded to %d frames of %d×%d", px.Count, px.Width, px.Height)
				}
				t.Log(err)
				require.ErrorIs(t, err, rewards.BadInput)
				require.ErrorContains(t, err, h.want)
				assert.NotContains(t, err.Error(), secret)
				assert.NotContains(t, strings.ToLower(err.Error()), "ffmpeg_timeout", "it is refused for what it is")
				blame, _ := rewards.BlameOf(err)
				assert.Equal(t, rewards.BlameSample, blame)
			})
		}
	})
	assert.Zero(t, d.Booked())
	assert.Zero(t, c.asked.Load(), "nothing was fetched")
}
