package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of what is read from the folder of pictures.
const (
	maxPictures     = 4096
	maxPictureBytes = 16 << 20
	maxListBytes    = 8 << 20
)

// listFile names the pictures of a folder, one JSON object a line.
const listFile = "samples.jsonl"

// Picture is one finished rollout with its description.
type Picture struct {
	ID        string `json:"id"`
	UID       string `json:"uid"` // prompt group
	GroupSize int    `json:"group_size"`
	Image     string `json:"image"` // name of a file in the folder of the list
	Prompt    string `json:"prompt"`
	// Target is the requested text, Rendered the text that the picture really shows. The reward
	// formula applied to Rendered is the true reward.
	Target   string   `json:"target"`
	Rendered string   `json:"rendered"`
	Lines    []string `json:"rendered_lines"`

	jpeg []byte
}

// Load reads the pictures that the samples.jsonl of a folder lists, in that order.
func Load(dir string) ([]Picture, error) {
	list, err := readBounded(filepath.Join(dir, listFile), maxListBytes)
	if err != nil {
		return nil, fmt.Errorf("pictures: %w", err)
	}
	var pictures []Picture
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(list))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		p, err := readPicture(dir, lines.Bytes())
		if err == nil && (seen[p.ID] || len(pictures) == maxPictures) {
			err = fmt.Errorf("id %q occurs twice, or these are more than %d pictures", p.ID, maxPictures)
		}
		if err != nil {
			return nil, fmt.Errorf("pictures: %s line %d: %w", filepath.Join(dir, listFile), n, err)
		}
		seen[p.ID] = true
		pictures = append(pictures, p)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("pictures: %s: %w", filepath.Join(dir, listFile), err)
	}
	if len(pictures) == 0 {
		return nil, fmt.Errorf("pictures: %s lists none", filepath.Join(dir, listFile))
	}
	return pictures, nil
}

func readPicture(dir string, line []byte) (Picture, error) {
	var p Picture
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, err
	}
	if p.ID == "" || p.UID == "" || p.Target == "" || !filepath.IsLocal(p.Image) {
		return p, errors.New("id, uid, target and image (a file below this folder) are needed")
	}
	var err error
	p.jpeg, err = readBounded(filepath.Join(dir, p.Image), maxPictureBytes)
	return p, err
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, err
}

// sample is the picture as a generator would submit it; index is its row in the
// trainer's batch. The target travels inside the prompt, in double quotes.
func (p *Picture) sample(index int) *rewards.Sample {
	return &rewards.Sample{
		ID: p.ID, Index: new(int64(index)), UID: p.UID, GroupSize: p.GroupSize, DataSource: "ocr", Prompt: p.Prompt,
		Media: []*rewards.Media{{
			Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(p.jpeg)}, Data: p.jpeg,
		}},
	}
}

// Folder returns the folder with the pictures: named, or else testdata/golden/ocr in the working
// directory or in the clone to which the program belongs.
func Folder(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	const below = "testdata/golden/ocr"
	tried := []string{filepath.FromSlash(below)}
	if exe, err := os.Executable(); err == nil {
		tried = append(tried, filepath.Join(filepath.Dir(exe), "..", filepath.FromSlash(below)))
	}
	for _, dir := range tried {
		if _, err := os.Stat(filepath.Join(dir, listFile)); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no demo pictures in %s: run it from the root of the clone, or name the folder with --data", quoted(tried))
}

func quoted(paths []string) string {
	var b bytes.Buffer
	for i, p := range paths {
		if i > 0 {
			b.WriteString(" or ")
		}
		fmt.Fprintf(&b, "%q", p)
	}
	return b.String()
}
