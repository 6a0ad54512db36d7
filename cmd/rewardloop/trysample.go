package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// tryMost is how many samples try takes: more are score's.
const tryMost = 256

// tryInput are the flags that say what is scored.
type tryInput struct {
	images, videos, prompts, responses []string
	truth, extra, file                 string
}

// lines are the samples of the flags, or those of the file; nil: none is given.
func (i *tryInput) lines(e *env) ([]*sampleLine, error) {
	lists := map[string][]string{"image": i.images, "video": i.videos, "prompt": i.prompts, "response": i.responses}
	n := 0
	for _, list := range lists {
		n = max(n, len(list))
	}
	if i.truth != "" || i.extra != "" {
		n = max(n, 1)
	}
	switch {
	case i.file != "" && n > 0:
		return nil, errors.New("--sample excludes the flags that make a sample: leave out --sample, or the other flags")
	case i.file != "":
		return i.read(e)
	case n > tryMost:
		return nil, tooMany(n)
	}
	out := make([]*sampleLine, n)
	for at := range out {
		sample := map[string]any{}
		for _, name := range []string{"image", "video", "prompt", "response"} {
			switch list := lists[name]; len(list) {
			case 0:
			case 1:
				sample[name] = list[0]
			case n:
				sample[name] = list[at]
			default:
				return nil, fmt.Errorf("--%s is given %d times, and there are %d samples: give it once for all, or once for each", name, len(list), n)
			}
		}
		if err := i.addJSON(sample); err != nil {
			return nil, err
		}
		line, err := json.Marshal(sample)
		if err != nil {
			return nil, err
		}
		if out[at], err = parseLine(line); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (i *tryInput) addJSON(sample map[string]any) error {
	if i.truth != "" {
		sample["ground_truth"] = i.truth
		if strings.ContainsRune(`{["`, rune(i.truth[0])) {
			if !json.Valid([]byte(i.truth)) {
				return fmt.Errorf("--ground-truth %s: the value begins like JSON but is not valid JSON; put a text in JSON quotes", clip(i.truth))
			}
			sample["ground_truth"] = json.RawMessage(i.truth)
		}
	}
	if i.extra != "" {
		if !json.Valid([]byte(i.extra)) {
			return fmt.Errorf("--extra-info %s: not valid JSON; want an object such as '{\"difficulty\": 3}'", clip(i.extra))
		}
		sample["extra_info"] = json.RawMessage(i.extra)
	}
	return nil
}

func tooMany(n int) error {
	return fmt.Errorf("%d samples, want at most %d: `rewardloop score` scores a file of samples", n, tryMost)
}

// read reads the file of --sample: one object, however it is broken into lines, or one a line.
func (i *tryInput) read(e *env) ([]*sampleLine, error) {
	from := e.stdin
	if i.file != "-" {
		f, err := os.Open(i.file)
		if err != nil {
			return nil, fmt.Errorf("--sample: %w", err)
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || info.IsDir() {
			return nil, fmt.Errorf("--sample: %s is a folder: want a file with a JSON object", i.file)
		}
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxLine+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--sample: %w", err)
	case len(text) > maxLine:
		return nil, fmt.Errorf("--sample: the file is longer than %d MiB", maxLine>>20)
	}
	var out []*sampleLine
	lines := bytes.Split(text, []byte("\n"))
	var whole bytes.Buffer
	if json.Compact(&whole, text) == nil {
		lines = [][]byte{whole.Bytes()}
	}
	for at, line := range lines {
		if line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff"))); len(line) == 0 {
			continue
		}
		l, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("--sample: line %d: %w", at+1, err)
		}
		out = append(out, l)
	}
	switch {
	case len(out) == 0:
		return nil, fmt.Errorf("--sample: %s has no sample", i.file)
	case len(out) > tryMost:
		return nil, fmt.Errorf("--sample: %w", tooMany(len(out)))
	case i.file != "-":
		for _, l := range out {
			l.resolve(filepath.Dir(i.file))
		}
	}
	return out, nil
}

// resolve has the paths of a sample start at a folder.
func (l *sampleLine) resolve(dir string) {
	for _, list := range [][]pictureFile{l.images, l.video} {
		for i, file := range list {
			if file.path != "" && !filepath.IsAbs(file.path) {
				list[i].path = filepath.Join(dir, file.path)
			}
		}
	}
}

// loadSamples reads the pictures of samples; nil: there are no samples.
func loadSamples(lines []*sampleLine, files *mediaFiles) ([]*rewards.Sample, error) {
	var out []*rewards.Sample
	for _, l := range lines {
		media, err := files.load(l)
		if err != nil {
			return nil, err
		}
		l.sample.Media = media
		out = append(out, &l.sample)
	}
	return out, nil
}
