package ppocr

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// characterKey is the entry of a recogniser's metadata that holds its alphabet.
const characterKey = "character"

// maxDictionary bounds an alphabet's file in bytes; the largest known has 37,415.
const maxDictionary = 4 << 20

// dictionary is what each class of a recogniser stands for: nothing (the blank),
// the characters, and a space.
type dictionary []string

// parseDictionary takes one character a line. A line may hold several code
// points, and may be a space of its own; an empty one is a fault, because all
// classes after it would be off by one for a reader that skips it.
func parseDictionary(text string) (dictionary, error) {
	text = strings.TrimSuffix(text, "\n")
	if text == "" {
		return nil, fmt.Errorf("%w: the dictionary is empty", infer.ErrModel)
	}
	lines := strings.Split(text, "\n")
	d := make(dictionary, 0, len(lines)+2)
	d = append(d, "")
	for i, l := range lines {
		l = strings.TrimSuffix(l, "\r")
		if l == "" {
			return nil, fmt.Errorf("%w: line %d of the dictionary is empty", infer.ErrModel, i+1)
		}
		d = append(d, l)
	}
	return append(d, " "), nil
}

// loadDictionary takes the alphabet from the model's metadata, or else from a file.
func loadDictionary(info infer.Info, path string) (dictionary, error) {
	if text, ok := info.Metadata[characterKey]; ok {
		d, err := parseDictionary(text)
		if err != nil {
			return nil, fmt.Errorf("metadata %q of the recogniser: %w", characterKey, err)
		}
		return d, nil
	}
	if path == "" {
		return nil, fmt.Errorf("%w: model without dictionary: the recogniser has no metadata %q, name the file of its alphabet in dictionary_path", infer.ErrModel, characterKey)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: dictionary: %w", infer.ErrModel, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDictionary+1))
	if err != nil {
		return nil, fmt.Errorf("%w: dictionary %s: %w", infer.ErrModel, path, err)
	}
	if len(text) > maxDictionary {
		return nil, fmt.Errorf("%w: dictionary %s has more than %d bytes", infer.ErrModel, path, maxDictionary)
	}
	d, err := parseDictionary(string(text))
	if err != nil {
		return nil, fmt.Errorf("dictionary %s: %w", path, err)
	}
	return d, nil
}

// fits says whether a recogniser's number of classes is that of the alphabet.
func (d dictionary) fits(classes int) error {
	if classes != len(d) {
		return fmt.Errorf("%w: the recogniser has %d classes, its dictionary %d characters, and blank and space make %d", infer.ErrModel, classes, len(d)-2, len(d))
	}
	return nil
}
