package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
)

// maxLine is the longest input line. A sample's text is far below it: what a frame
// carries beside its pictures is at most 1 MiB.
const maxLine = 16 << 20

// inputLine is one line of the input.
type inputLine struct {
	number int
	end    int64 // offset of the byte after it
	text   []byte
	long   bool  // over maxLine: text is empty
	bad    error // why it is no sample; nil: text says
	// images and frames are those that the input itself holds; the text has none then.
	images, frames []pictureFile
}

// pictureFile is a picture by its path, or by the bytes of its file.
type pictureFile struct {
	path string
	data []byte // nil: those at path
}

// lineSource is where samples come from. next returns io.EOF after the last one.
type lineSource interface{ next() (inputLine, error) }

// lineReader reads lines of bounded length; lines of white space alone are counted
// and left out.
type lineReader struct {
	r      *bufio.Reader
	number int
	offset int64
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line, or io.EOF.
func (l *lineReader) next() (inputLine, error) {
	for {
		line, err := l.one()
		if len(line.text) > 0 || line.long || err != nil {
			return line, err
		}
	}
}

func (l *lineReader) one() (inputLine, error) {
	line := inputLine{number: l.number + 1}
	for {
		part, err := l.r.ReadSlice('\n')
		l.offset += int64(len(part))
		if line.long = line.long || len(line.text)+len(part) > maxLine; line.long {
			line.text = nil
		} else {
			line.text = append(line.text, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		l.number++
		line.end = l.offset
		if line.number == 1 {
			line.text = bytes.TrimPrefix(line.text, []byte("\ufeff")) // some editors write one
		}
		line.text = bytes.TrimSpace(line.text)
		if errors.Is(err, io.EOF) && (len(line.text) > 0 || line.long) {
			err = nil // the last line need not have an end
		}
		return line, err
	}
}

// sampleLine is what a line says. Paths are not looked at yet.
type sampleLine struct {
	id     string
	sample rewards.Sample // without ID and Media
	images []pictureFile
	video  []pictureFile // one folder, or the frames
	folder bool          // or a file of a video: one path
	audio  []pictureFile // one file
}

// sampleKeys are what a line may have.
func sampleKeys() []string {
	return []string{
		"id", "uid", "group_size", "data_source", "prompt", "response", "image", "images", "video", "audio", "ground_truth", "extra_info",
		"reward", "step", "split", "index",
	}
}

// unknownKey is a key that no sample has.
func unknownKey(key string) error {
	return fmt.Errorf("unknown key %q%s; want one of %s", clip(key), config.DidYouMean(key, sampleKeys()), strings.Join(sampleKeys(), ", "))
}

// parseLine reads a line. On an error the id is set if it could be read. Strict,
// because a misspelt key would be a sample scored without what it says: no unknown
// keys, none in another case, none twice. A null is the same as an absent key.
func parseLine(line []byte) (*sampleLine, error) {
	l := &sampleLine{}
	if !utf8.Valid(line) {
		return l, refuse(rewards.Malformed, "invalid UTF-8")
	}
	if !json.Valid(line) {
		err := json.Unmarshal(line, new(json.RawMessage))
		return l, refuse(rewards.Malformed, "this is not JSON: %w", err)
	}
	if line[0] == '[' {
		return l, refuse(rewards.Malformed, "want one JSON object on each line, found a list: convert the file with jq -c '.[]' FILE")
	}
	if line[0] != '{' {
		return l, refuse(rewards.Malformed, "want a JSON object, found %s", shown(line))
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	_, _ = dec.Token() // the brace; the text is valid
	seen := map[string]bool{}
	var first error
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return l, refuse(rewards.Malformed, "%w", err)
		}
		key, _ := token.(string)
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return l, refuse(rewards.Malformed, "%s: %w", key, err)
		}
		switch {
		case seen[key]:
			err = fmt.Errorf("duplicate key %q", clip(key))
		case string(v) != "null":
			err = l.set(key, v)
		}
		seen[key] = true
		if err != nil && first == nil {
			first = refuse(rewards.Malformed, "%w", err) // go on: the id may come later
		}
	}
	if first == nil {
		first = l.oneMedia()
	}
	return l, first
}

// oneMedia refuses a line that has both pictures and a video.
func (l *sampleLine) oneMedia() error {
	if len(l.images) > 0 && len(l.video) > 0 {
		return refuse(rewards.Malformed, "a sample has both pictures and a video: keep one of image, images and video")
	}
	return nil
}

// set takes one member of the object.
func (l *sampleLine) set(key string, v json.RawMessage) (err error) {
	s := &l.sample
	switch key {
	case "id":
		err = text(v, &l.id)
	case "uid":
		err = text(v, &s.UID)
	case "group_size":
		var n int64
		n, err = integer(v, 0, math.MaxInt32)
		s.GroupSize = int(n)
	case "data_source":
		err = text(v, &s.DataSource)
	case "prompt":
		err = text(v, &s.Prompt)
	case "response":
		err = text(v, &s.Response)
	case "reward":
		err = text(v, &s.Reward)
	case "step":
		s.Step, err = integer(v, math.MinInt64, math.MaxInt64)
	case "index":
		var n int64
		n, err = integer(v, 0, math.MaxInt32)
		s.Index = &n
	case "split":
		err = text(v, (*string)(&s.Split))
		if err == nil && s.Split != rewards.Train && s.Split != rewards.Val {
			err = fmt.Errorf("want train or val, found %s", shown(v))
		}
	case "ground_truth":
		s.GroundTruth = v
	case "extra_info":
		if s.ExtraInfo = v; v[0] != '{' {
			err = fmt.Errorf("want an object, found %s", shown(v))
		}
	case "image":
		l.images = append(l.images, pictureFile{})
		err = text(v, &l.images[len(l.images)-1].path)
	case "images":
		var all []pictureFile
		all, err = paths(v)
		l.images = append(l.images, all...)
	case "video":
		if l.folder = v[0] == '"'; l.folder {
			l.video = []pictureFile{{}}
			err = text(v, &l.video[0].path)
		} else {
			l.video, err = paths(v)
		}
	case "audio":
		l.audio = []pictureFile{{}}
		err = text(v, &l.audio[0].path)
	default:
		return unknownKey(key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func text(v json.RawMessage, to *string) error {
	if v[0] != '"' {
		return fmt.Errorf("want a string, found %s", shown(v))
	}
	return json.Unmarshal(v, to)
}

// paths reads a list of at least one string.
func paths(v json.RawMessage) ([]pictureFile, error) {
	var raw []json.RawMessage
	if v[0] != '[' || json.Unmarshal(v, &raw) != nil || len(raw) == 0 {
		return nil, fmt.Errorf("want a list of paths, found %s", shown(v))
	}
	all := make([]pictureFile, len(raw))
	for i := range raw {
		if err := text(raw[i], &all[i].path); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return all, nil
}

func integer(v json.RawMessage, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("want an integer from %d to %d, found %s", low, high, shown(v))
	}
	return n, nil
}

func shown(v []byte) string { return clip(string(v)) }

// clip shortens what a message quotes.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// lineError is why a line is rejected. Its class is not part of its text: it has a
// field of its own in the output.
type lineError struct {
	class rewards.Class
	err   error
}

func (e *lineError) Error() string   { return e.err.Error() }
func (e *lineError) Unwrap() []error { return []error{e.class, e.err} }

func refuse(class rewards.Class, format string, args ...any) error {
	return &lineError{class, fmt.Errorf(format, args...)}
}
