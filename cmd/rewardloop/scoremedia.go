package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// mediaFiles reads the pictures that samples name.
type mediaFiles struct {
	// root confines every path, symbolic links included; nil: --media-root was not given.
	root *os.Root
	// dir is what relative paths are relative to where there is no root.
	dir string
	// maxBytes bounds the pictures of one sample, maxFrames the frames of a video.
	maxBytes  int64
	maxFrames int
}

// load reads the media of a sample. Its errors are of class BadInput or TooLarge.
func (m *mediaFiles) load(l *sampleLine) ([]*rewards.Media, error) {
	left := m.maxBytes
	all := make([]*rewards.Media, 0, len(l.images)+len(l.video)+len(l.audio))
	if len(l.video) > 0 {
		v, err := m.video(l, &left)
		if err != nil {
			return nil, fmt.Errorf("video: %w", err)
		}
		all = append(all, v)
	}
	for _, file := range l.audio {
		data, err := m.file(file.path, left)
		if err != nil {
			return nil, fmt.Errorf("audio: %w", err)
		}
		left -= int64(len(data))
		encoding := media.SniffFile(data)
		if encoding != rewards.WAV && encoding != rewards.FLAC {
			return nil, fmt.Errorf("audio: %w", refuse(rewards.BadInput, "%s is neither a WAV nor a FLAC file", file.path))
		}
		all = append(all, &rewards.Media{Kind: rewards.Audio, Encoding: encoding, DType: "U8", Shape: []int{len(data)}, Data: data})
	}
	for _, file := range l.images {
		data, encoding, err := m.picture(file, &left)
		if err != nil {
			return nil, fmt.Errorf("image: %w", err)
		}
		all = append(all, &rewards.Media{Kind: rewards.Image, Encoding: encoding, DType: "U8", Shape: []int{len(data)}, Data: data})
	}
	return all, nil
}

// video reads the frames, a folder's in the order of their names.
func (m *mediaFiles) video(l *sampleLine, left *int64) (*rewards.Media, error) {
	frames := l.video
	if l.folder {
		if whole, err := m.film(l.video[0].path, left); whole != nil || err != nil {
			return whole, err
		}
		var err error
		if frames, err = m.folder(l.video[0].path); err != nil {
			return nil, err
		}
	}
	if len(frames) > m.maxFrames {
		return nil, refuse(rewards.TooLarge, "%d frames, pool.decode.max_frames is %d", len(frames), m.maxFrames)
	}
	v := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, DType: "U8"}
	for _, file := range frames {
		data, _, err := m.picture(file, left)
		if err != nil {
			return nil, err
		}
		v.Frames = append(v.Frames, data)
	}
	return v, nil
}

// film reads the file of a video; nil: the path is none, such as a folder of frames.
func (m *mediaFiles) film(path string, left *int64) (*rewards.Media, error) {
	f, err := m.open(path)
	if err != nil {
		return nil, err
	}
	head := make([]byte, 64)
	n, err := io.ReadFull(f, head)
	encoding := media.SniffFile(head[:n])
	if _ = f.Close(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || !encoding.OfVideo() {
		return nil, nil //nolint:nilnil // folder says what else it is
	}
	data, err := m.file(path, *left)
	if err != nil {
		return nil, err
	}
	*left -= int64(len(data))
	return &rewards.Media{Kind: rewards.Video, Encoding: encoding, DType: "U8", Shape: []int{len(data)}, Data: data}, nil
}

// folder lists the frames in a folder: every file that is not hidden, frame2 before
// frame10.
func (m *mediaFiles) folder(path string) ([]pictureFile, error) {
	f, err := m.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		head := make([]byte, 16)
		n, _ := io.ReadFull(f, head) // what could be read tells enough
		if kind := container(head[:n]); kind != "" {
			return nil, refuse(rewards.BadInput, "%s is %s, which is not supported: give a folder of its frames (ffmpeg -i %s frames/%%05d.png)",
				path, kind, filepath.Base(path))
		}
		return nil, refuse(rewards.BadInput, "%s is neither a folder nor a video: want a folder of frames, a list of pictures, or an MP4, WebM or GIF file", path)
	}
	// One more than the limit is enough to know that there are too many.
	entries, err := f.ReadDir(2*m.maxFrames + 16)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, refuse(rewards.BadInput, "%w", err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, refuse(rewards.BadInput, "the folder %s is empty", path)
	}
	slices.SortFunc(names, natural)
	files := make([]pictureFile, len(names))
	for i, n := range names {
		files[i].path = filepath.Join(path, n)
	}
	return files, nil
}

// natural compares names so that a number in them counts as a number.
func natural(a, b string) int {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		da, db := digits(a[i:]), digits(b[j:])
		if da == "" || db == "" {
			if a[i] != b[j] {
				return int(a[i]) - int(b[j])
			}
			i, j = i+1, j+1
			continue
		}
		na, nb := strings.TrimLeft(da, "0"), strings.TrimLeft(db, "0")
		if len(na) != len(nb) {
			return len(na) - len(nb)
		}
		if c := strings.Compare(na, nb); c != 0 {
			return c
		}
		i, j = i+len(da), j+len(db)
	}
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func digits(s string) string {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return s[:n]
}

// picture reads one encoded picture and tells its format by its first bytes.
func (m *mediaFiles) picture(file pictureFile, left *int64) ([]byte, rewards.Encoding, error) {
	name, data := file.path, file.data
	if data == nil {
		var err error
		if data, err = m.file(file.path, *left); err != nil {
			return nil, "", err
		}
	} else if name == "" {
		name = "the picture"
	}
	if int64(len(data)) > *left {
		return nil, "", m.large(name, int64(len(data)))
	}
	*left -= int64(len(data))
	encoding := media.Sniff(data)
	if encoding != "" {
		return data, encoding, nil
	}
	if kind := container(data); kind != "" {
		return nil, "", refuse(rewards.BadInput, "%s is %s: want a PNG, JPEG or WebP picture", name, kind)
	}
	return nil, "", refuse(rewards.BadInput, "%s is not a PNG, JPEG or WebP picture (%d bytes, beginning % x)",
		name, len(data), data[:min(len(data), 8)])
}

func (m *mediaFiles) large(name string, bytes int64) error {
	return refuse(rewards.TooLarge, "%s has %d bytes; all pictures of a sample may have at most loop.message_bytes = %d", name, bytes, m.maxBytes)
}

// file reads a file that is not larger than most.
func (m *mediaFiles) file(path string, most int64) ([]byte, error) {
	f, err := m.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, refuse(rewards.BadInput, "%w", err)
	case info.IsDir():
		return nil, refuse(rewards.BadInput, "%s is a folder: give a folder of frames as video", path)
	case !info.Mode().IsRegular():
		return nil, refuse(rewards.BadInput, "%s is not a regular file but %s", path, info.Mode().Type())
	case info.Size() > most:
		return nil, m.large(path, info.Size())
	}
	data := make([]byte, info.Size())
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, refuse(rewards.BadInput, "%w", err)
	}
	return data[:n], nil
}

// open never waits: opening a named pipe would, for a writer that may not come.
func (m *mediaFiles) open(path string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK
	if path == "" {
		return nil, refuse(rewards.BadInput, "an empty path")
	}
	var f *os.File
	var err error
	if m.root != nil {
		f, err = m.root.OpenFile(path, flags, 0)
	} else {
		if !filepath.IsAbs(path) {
			path = filepath.Join(m.dir, path)
		}
		f, err = os.OpenFile(path, flags, 0)
	}
	var pe *fs.PathError
	switch {
	case err == nil:
		return f, nil
	case m.root != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && errors.As(err, &pe):
		return nil, refuse(rewards.BadInput, "%s: %w: paths are relative to --media-root and must stay below it", path, pe.Err)
	}
	return nil, refuse(rewards.BadInput, "%w", err)
}

// container names what people give by mistake; "" for anything else.
func container(data []byte) string {
	is := func(at int, magic string) bool {
		return len(data) >= at+len(magic) && string(data[at:at+len(magic)]) == magic
	}
	switch {
	case is(4, "ftypavif"), is(4, "ftypheic"), is(4, "ftypmif1"):
		return "an AVIF or HEIC picture"
	case is(4, "ftyp"):
		return "an MP4 video"
	case is(0, "\x1a\x45\xdf\xa3"):
		return "a WebM or Matroska video"
	case is(0, "RIFF") && is(8, "AVI "):
		return "an AVI video"
	case is(0, "GIF8"):
		return "a GIF"
	case is(0, "BM"):
		return "a BMP picture"
	case is(0, "II*\x00"), is(0, "MM\x00*"):
		return "a TIFF picture"
	case is(0, "\x93NUMPY"):
		return "a NumPy array"
	case is(0, "version https://git-lfs"):
		return "a Git LFS pointer (git lfs pull fetches the file)"
	}
	return ""
}
