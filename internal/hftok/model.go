package hftok

import (
	"encoding/json"
	"fmt"
)

// model gives a piece of text its ids.
type model interface {
	// encode appends the ids of word, which is not empty and is UTF-8, to dst.
	encode(sc *scratch, dst []int64, word string) ([]int64, error)
}

// vocabulary is a model's tokens both ways.
type vocabulary struct {
	ids    map[string]int64
	tokens map[int64]string
	size   int   // as the library counts it; the first added token gets this id
	top    int64 // the highest id; -1: empty
}

// readModel reads the section "model". A byte-level step that ends the pre-tokenizer before a BPE
// model is taken from pre and done by the model, which then works on bytes.
func (t *Tokenizer) readModel(raw json.RawMessage, pre *preTokenizer) (*vocabulary, error) {
	if absent(raw) {
		return nil, fmt.Errorf("%w: no model", errInvalid)
	}
	c, err := openObject("model", raw)
	if err != nil {
		return nil, err
	}
	if !c.value("type", &c.kind) && c.err == nil {
		c.kind = untypedModel(c.fields)
	}
	if c.err != nil {
		return nil, c.err
	}
	switch c.kind {
	case "BPE":
		m, v, err := readBPE(c, takeByteLevel(pre))
		t.model = m
		return v, err
	case "WordPiece":
		m, v, err := readWordPiece(c)
		t.model = m
		return v, err
	case "WordLevel":
		m, v, err := readWordLevel(c)
		t.model = m
		return v, err
	case "Unigram":
		m, v, err := readUnigram(c)
		t.model = m
		return v, err
	}
	return nil, c.unknown()
}

// untypedModel tells the models of files older than the key "type" apart, in the library's order.
func untypedModel(fields map[string]json.RawMessage) string {
	has := func(key string) bool { return !absent(fields[key]) }
	switch {
	case has("merges"):
		return "BPE"
	case has("max_input_chars_per_word"):
		return "WordPiece"
	case has("unk_token"):
		return "WordLevel"
	default:
		return "Unigram"
	}
}

// readVocab reads a vocabulary written as an object.
func readVocab(c *component) *vocabulary {
	v := &vocabulary{top: -1}
	c.require("vocab", &v.ids)
	if c.err == nil && len(v.ids) > maxVocab {
		c.fail(fmt.Errorf("%w: model: a vocabulary of %d tokens has more than %d", errInvalid, len(v.ids), maxVocab))
	}
	if c.err != nil {
		return v
	}
	v.size = len(v.ids)
	v.tokens = make(map[int64]string, len(v.ids))
	for token, id := range v.ids {
		if id < 0 || id > maxID || len(token) > maxToken {
			c.fail(fmt.Errorf("%w: model: vocab: token %q with the id %d is out of bounds", errInvalid, short(token), id))
			return v
		}
		if other, taken := v.tokens[id]; taken {
			c.fail(fmt.Errorf("%w: model: vocab: tokens %q and %q have the same id %d", errInvalid, short(min(token, other)), short(max(token, other)), id))
			return v
		}
		v.tokens[id] = token
		v.top = max(v.top, id)
	}
	return v
}

// noUnknown is the error for a word that needs the unknown token where the vocabulary has none.
func noUnknown(word, unk string) error {
	return fmt.Errorf("%w: %q needs the unknown token %q, which is not in the vocabulary", errText, short(word), short(unk))
}
