package preference

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/hftok"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/pytext"
	"github.com/rewardloop/rewardloop/rewards"
)

const (
	// maxText bounds each text of a sample: 256 KiB are more tokens than any model that
	// ships reads.
	maxText = 256 << 10
	// padStep is what lengths are a multiple of where a mask tells the padding from the
	// text: texts of almost equal length then share a batch.
	padStep = 16
)

// words makes tokens of texts, as a sidecar says.
type words struct {
	tokenizer *hftok.Tokenizer
	rules     textRules
	// masked: the graph knows padding from text, so that filling up changes nothing.
	masked bool
}

// tokens is a text as a graph reads it: ids, a mask of ones where they are the text's, and
// which text of a pair they are of. All have one length, that of the filled-up text.
type tokens struct {
	ids, mask, types []int64
	// count is the number of tokens without the padding.
	count     int
	truncated bool
}

// loadWords reads the folder's tokenizer.
func loadWords(folder string, side *sidecar) (*words, error) {
	name := side.Files.names().Tokenizer
	t, err := hftok.Load(filepath.Join(folder, name))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", infer.ErrModel, name, err)
	}
	w := &words{tokenizer: t, rules: *side.Text}
	if w.rules.Template == "" && side.Kind != kindText {
		w.rules.Template = promptPlace
	}
	if last := int64(t.Size()) - 1; w.rules.PadID > last {
		return nil, fmt.Errorf("%w: %s: text.pad_id of %s is %d, and the last token is %d", infer.ErrModel, name, sidecarFile, w.rules.PadID, last)
	}
	return w, nil
}

// encode makes the tokens of a sample's texts; template, unless empty, stands in for the
// sidecar's.
func (w *words) encode(template, prompt, response string) (tokens, error) {
	for _, text := range []string{prompt, response} {
		if len(text) > maxText {
			return tokens{}, fmt.Errorf("%w: a text of %d bytes, want at most %d", rewards.BadInput, len(text), maxText)
		}
	}
	template = orElse(template, w.rules.Template)
	var t tokens
	var err error
	if template == "" {
		t, err = w.pair(w.canonical(prompt), w.canonical(response))
	} else {
		t, err = w.single(w.canonical(render(template, prompt, response)))
	}
	if err != nil {
		return tokens{}, fmt.Errorf("%w: tokenizer: %w", rewards.BadInput, err)
	}
	w.pad(&t)
	return t, nil
}

// render fills a template in. What a text holds is never a place itself.
func render(template, prompt, response string) string {
	return strings.NewReplacer(promptPlace, prompt, responsePlace, response).Replace(template)
}

// canonical is what the sidecar's lower and strip_punctuation make of a text.
func (w *words) canonical(text string) string {
	if w.rules.Lower {
		text = pytext.Lower(text)
	}
	if w.rules.StripPunctuation {
		text = strings.Map(func(r rune) rune {
			if strings.ContainsRune(punctuation, r) {
				return -1
			}
			return r
		}, text)
		text = strings.Join(strings.FieldsFunc(text, pytext.IsSpace), " ")
	}
	return text
}

// punctuation is Python's string.punctuation.
const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// single makes the tokens of one text, cut as Hugging Face's truncation=True does: on the
// right, with the special tokens kept.
func (w *words) single(text string) (tokens, error) {
	ids, err := w.tokenizer.Encode(text, true)
	if err != nil {
		return tokens{}, err //nolint:wrapcheck // encode says whose it is
	}
	truncated := len(ids) > w.rules.Length
	if truncated {
		if ids, err = w.tokenizer.EncodeMax(text, true, w.rules.Length); err != nil {
			return tokens{}, err //nolint:wrapcheck // encode says whose it is
		}
	}
	return tokens{ids: ids, types: make([]int64, len(ids)), truncated: truncated}, nil
}

// pair makes the tokens of two texts, cut as Hugging Face's "longest_first" does.
func (w *words) pair(a, b string) (tokens, error) {
	both, err := w.tokenizer.EncodePair(a, b, true)
	truncated := err == nil && len(both.IDs) > w.rules.Length
	if truncated {
		both, err = w.tokenizer.EncodePairMax(a, b, true, w.rules.Length)
	}
	return tokens{ids: both.IDs, types: both.Types, truncated: truncated}, err //nolint:wrapcheck // encode says whose it is
}

// pad fills up to the length that the rules say and makes the mask.
func (w *words) pad(t *tokens) {
	t.count = len(t.ids)
	length := t.count
	switch {
	case w.rules.Pad == padMaxLength:
		length = w.rules.Length
	case length == 0:
		length = 1 // a graph has no place to read in no tokens
	case w.masked:
		length = min((length+padStep-1)/padStep*padStep, max(w.rules.Length, length))
	}
	fill := max(length-t.count, 0)
	t.ids = append(slices.Clip(t.ids), slices.Repeat([]int64{w.rules.PadID}, fill)...)
	t.types = append(slices.Clip(t.types), make([]int64, fill)...)
	t.mask = append(slices.Repeat([]int64{1}, t.count), make([]int64, fill)...)
}

// only is a text of one token and nothing else, not even padding: with the tokenizer's
// last token a graph shows whether it has an embedding for all of them.
func (w *words) only(id int64) tokens {
	t := tokens{ids: []int64{id}, types: []int64{0}}
	w.pad(&t)
	for i := range t.ids {
		t.ids[i] = id
	}
	return t
}
