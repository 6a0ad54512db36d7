package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

func isCSV(path string) bool { return form(path) == ".csv" }

func isPicture(path string) bool {
	return slices.Contains([]string{".png", ".jpg", ".jpeg", ".webp"}, form(path))
}

func isVideo(path string) bool { return slices.Contains([]string{".mp4", ".webm", ".gif"}, form(path)) }

// isBinary says whether a file begins with bytes that no text has.
func isBinary(f io.ReaderAt) bool {
	head := make([]byte, 512)
	n, _ := f.ReadAt(head, 0) // what cannot be read is found out later
	return bytes.IndexByte(head[:n], 0) >= 0
}

// inputForms and outputForms are the endings of the names that -i and -o may have. A name
// without an ending, such as a pipe's, is JSON lines.
func inputForms() []string {
	return []string{".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".png", ".jpg", ".jpeg", ".webp", ".mp4", ".webm", ".gif"}
}

func outputForms() []string { return []string{".jsonl", ".ndjson", ".csv", ".parquet", ".html"} }

// form is the ending of a name in lower case.
func form(path string) string { return strings.ToLower(filepath.Ext(path)) }

// checkForms refuses by name files of a form that is neither read nor written.
func checkForms(f *scoreFlags) error {
	var errs []error
	if ext := form(f.input); ext != "" && !slices.Contains(inputForms(), ext) && !isFolder(f.input) {
		errs = append(errs, fmt.Errorf("-i %s: cannot read %s files; want %s, a folder of pictures, or a name without an extension for JSON lines",
			f.input, ext, strings.Join(inputForms(), " ")))
	}
	if ext := form(f.output); ext != "" && !slices.Contains(outputForms(), ext) {
		errs = append(errs, fmt.Errorf("-o %s: cannot write %s files; want %s, or a name without an extension for JSON lines",
			f.output, ext, strings.Join(outputForms(), " ")))
	}
	return errors.Join(errs...)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// maxFolder is how many files of a folder are looked at.
const maxFolder = 1 << 20

// folderLines are the pictures of a folder, each as the line of a sample.
type folderLines struct {
	names  []string
	number int
}

func newFolderLines(folder *os.File) (*folderLines, error) {
	entries, err := folder.ReadDir(maxFolder + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxFolder {
		return nil, fmt.Errorf("more than %d files: name the pictures in a file, one sample a line", maxFolder)
	}
	l := new(folderLines)
	for _, e := range entries {
		if (isPicture(e.Name()) || isVideo(e.Name())) && !strings.HasPrefix(e.Name(), ".") {
			l.names = append(l.names, e.Name())
		}
	}
	if len(l.names) == 0 {
		return nil, errors.New("the folder has no pictures or videos (.png, .jpg, .jpeg, .webp, .mp4, .webm, .gif): give another folder, or a file with one sample on each line")
	}
	slices.SortFunc(l.names, natural)
	return l, nil
}

func (l *folderLines) next() (inputLine, error) {
	if l.number == len(l.names) {
		return inputLine{}, io.EOF
	}
	name := l.names[l.number]
	l.number++
	kind := "image"
	if isVideo(name) {
		kind = "video"
	}
	text, err := json.Marshal(map[string]string{"id": name, kind: name})
	return inputLine{number: l.number, text: text}, err
}

// csvLines are the rows of a CSV file, each as the line of a sample. The first row names the
// columns.
type csvLines struct {
	in   *io.LimitedReader // of one row, so that a quote without an end is found
	r    *csv.Reader
	head []string
}

func newCSVLines(in io.Reader) (*csvLines, error) {
	l := &csvLines{in: &io.LimitedReader{R: in, N: maxLine}}
	l.r = csv.NewReader(l.in)
	head, err := l.r.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("is empty: want a first row with the names of the columns")
	}
	if err != nil {
		return nil, err
	}
	head[0] = strings.TrimPrefix(head[0], "\ufeff") // some programs write one
	for i, name := range head {
		head[i] = strings.TrimSpace(name)
		switch {
		case !slices.Contains(sampleKeys(), head[i]):
			return nil, fmt.Errorf("the first row names the columns: %w", unknownKey(head[i]))
		case slices.Contains(head[:i], head[i]):
			return nil, fmt.Errorf("duplicate column %q", head[i])
		}
	}
	l.head = head
	return l, nil
}

func (l *csvLines) next() (inputLine, error) {
	l.in.N = maxLine
	cells, err := l.r.Read()
	if l.in.N <= 0 {
		return inputLine{}, fmt.Errorf("a row is longer than %d MiB: check for a quote that is not closed", maxLine>>20)
	}
	if len(cells) == 0 {
		return inputLine{}, err
	}
	line := inputLine{end: l.r.InputOffset()}
	line.number, _ = l.r.FieldPos(0)
	if err != nil {
		line.bad = refuse(rewards.Malformed, "%d cells, and the first row has %d columns", len(cells), len(l.head))
		return line, nil //nolint:nilerr // it is the row that is wrong: the others are read
	}
	sample := make(map[string]json.RawMessage, len(cells))
	for i, cell := range cells {
		if cell != "" {
			sample[l.head[i]] = cellValue(l.head[i], cell)
		}
	}
	line.text, err = json.Marshal(sample)
	return line, err
}

// cellValue is a cell as the JSON that a line would have. What cannot be that stays a text,
// which the line's check then refuses.
func cellValue(column, cell string) json.RawMessage {
	text, _ := json.Marshal(strings.ToValidUTF8(cell, "\ufffd")) //nolint:errchkjson // a text can be written
	trimmed := strings.TrimSpace(cell)
	asJSON := false
	switch column {
	case "group_size", "step", "index":
		_, err := strconv.ParseInt(trimmed, 10, 64)
		asJSON = err == nil && json.Valid([]byte(trimmed)) // +7 and 007 are numbers of no JSON
	case "extra_info", "images", "video", "ground_truth":
		asJSON = strings.ContainsAny(trimmed[:min(1, len(trimmed))], "{[\"") && json.Valid([]byte(trimmed))
	}
	if asJSON {
		return json.RawMessage(trimmed)
	}
	return text
}

// headCSV is the first row of an output in CSV.
func headCSV() []byte {
	return rowCSV("id", "outcome", "reward_score", "reward_extra_info", "details", "errors", "fallback", "step_scores", "timing_ms")
}

// encodeCSV writes a row: objects and lists are JSON in their cell, and what is not there is an
// empty one.
func encodeCSV(r *outputLine) []byte {
	_ = encode(r) // makes a failure of what JSON cannot hold
	score := ""
	if r.RewardScore != nil {
		score = strconv.FormatFloat(*r.RewardScore, 'g', -1, 64)
	}
	cell := func(v any, there bool) string {
		if !there {
			return ""
		}
		b, _ := json.Marshal(v) //nolint:errchkjson // it has just been written
		return string(b)
	}
	return rowCSV(r.ID, string(r.Outcome), score, cell(r.ExtraInfo, len(r.ExtraInfo) > 0), cell(r.Details, len(r.Details) > 0), cell(r.Errors, len(r.Errors) > 0),
		cell(r.Fallback, r.Fallback != nil), cell(r.StepScores, r.StepScores != nil), cell(r.TimingMS, len(r.TimingMS) > 0))
}

func rowCSV(cells ...string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(cells) // a buffer takes everything
	w.Flush()
	return b.Bytes()
}
