package hftok

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
)

var (
	// errInvalid says that a tokenizer.json cannot be read: not JSON, out of bounds, or at odds with
	// itself.
	errInvalid = errors.New("hftok: invalid tokenizer.json")
	// errUnsupported says that a tokenizer.json asks for something this package does not do.
	errUnsupported = errors.New("hftok: unsupported tokenizer.json")
	// errText says that a text cannot be encoded: not UTF-8, too long, without a token for a
	// character where there is none for the unknown, or too costly for its regular expression.
	errText = errors.New("hftok: cannot encode the text")
)

// maxText is the longest text that is encoded, in bytes.
const maxText = 4 << 20

// maxNormalized bounds what a normaliser may make of a text, in bytes.
const maxNormalized = 16 << 20

// Tokenizer is a loaded tokenizer.json. It is safe for concurrent use.
type Tokenizer struct {
	raw, normalized *addedMatcher // added tokens matched before and after the normaliser
	norm            normalizer    // nil: none
	pre             preTokenizer  // nil: none
	model           model
	post            *postProcessor
	decode          decoder // nil: tokens are joined by spaces

	ids     map[string]int64 // added tokens first, then the model's
	tokens  map[int64]string
	special map[string]bool // contents of special added tokens
	size    int

	scratch sync.Pool // of *scratch
}

// Encoding is the encoding of a text or of a pair of texts: three slices of the same length.
type Encoding struct {
	IDs   []int64
	Types []int64 // token type ids: usually 0 for the first text and 1 for the second
	Mask  []int64 // attention mask: 1 everywhere, because nothing is padded
}

// scratch is what one call needs and the next one can use again.
type scratch struct {
	pieces, spare []piece
	spans         []span
	buf           []byte
	word          bpeWord
	path          []pathNode
	ends          []int32
}

// Encode returns the ids of the text. special adds the tokens of the post-processor, such as CLS
// and SEP; special tokens written in the text itself are always found, as in the library. Nothing
// is truncated or padded, whatever the file contains. An error means that the text cannot be
// encoded: it is not UTF-8, is longer than 4 MiB, has a character without a token while there is no
// token for the unknown, or is too costly for a regular expression of the file.
func (t *Tokenizer) Encode(text string, special bool) ([]int64, error) {
	ids, err := t.encode(text)
	if err != nil {
		return nil, err
	}
	if !t.post.adds(special) {
		return ids, nil
	}
	return t.post.single(ids).IDs, nil
}

// EncodePair returns the encoding of two texts as one input, joined by the post-processor.
func (t *Tokenizer) EncodePair(a, b string, special bool) (Encoding, error) {
	first, second, err := t.encodeBoth(a, b)
	if err != nil {
		return Encoding{}, err
	}
	return t.post.pair(first, second, special), nil
}

// EncodeMax is like Encode, truncated on the right to at most limit ids like in the library: the
// last ids of the text are removed, and the tokens of the post-processor are kept, so that CLIP's
// end of text is the last id of a long prompt. EncodeMax fails if limit is too small for these
// tokens.
func (t *Tokenizer) EncodeMax(text string, special bool, limit int) ([]int64, error) {
	ids, err := t.encode(text)
	if err != nil {
		return nil, err
	}
	room, err := t.room(special, false, limit)
	if err != nil {
		return nil, err
	}
	ids = ids[:min(len(ids), room)]
	if !t.post.adds(special) {
		return ids, nil
	}
	return t.post.single(ids).IDs, nil
}

// EncodePairMax is like EncodePair, truncated on the right to at most limit ids with the strategy
// "longest_first" of the library.
func (t *Tokenizer) EncodePairMax(a, b string, special bool, limit int) (Encoding, error) {
	first, second, err := t.encodeBoth(a, b)
	if err != nil {
		return Encoding{}, err
	}
	room, err := t.room(special, true, limit)
	if err != nil {
		return Encoding{}, err
	}
	n, m := longestFirst(len(first), len(second), room)
	return t.post.pair(first[:n], second[:m], special), nil
}

// room is how many ids the texts may have so that all fit into limit.
func (t *Tokenizer) room(special, pair bool, limit int) (int, error) {
	added := 0
	if special {
		added = t.post.added(pair)
	}
	if limit < added {
		return 0, fmt.Errorf("%w: a length of %d has no room for %d special tokens", errText, limit, added)
	}
	return limit - added, nil
}

// longestFirst says how many ids of two texts stay, as truncate_encodings of the library does.
func longestFirst(a, b, room int) (first, second int) {
	if a+b <= room {
		return a, b
	}
	short := min(a, b)
	long := short
	if short <= room {
		long = max(short, room-short)
	}
	if short+long > room {
		short = room / 2
		long = short + room%2
	}
	if a > b {
		return min(a, long), min(b, short)
	}
	return min(a, short), min(b, long)
}

func (t *Tokenizer) encodeBoth(a, b string) (first, second []int64, err error) {
	if first, err = t.encode(a); err != nil {
		return nil, nil, fmt.Errorf("first text: %w", err)
	}
	if second, err = t.encode(b); err != nil {
		return nil, nil, fmt.Errorf("second text: %w", err)
	}
	return first, second, nil
}

// encode is Encode without the post-processor.
func (t *Tokenizer) encode(text string) ([]int64, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: %d bytes are over the limit of %d", errText, len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("%w: the text is not UTF-8", errText)
	}
	sc, ok := t.scratch.Get().(*scratch)
	if !ok {
		sc = &scratch{}
	}
	defer t.recycle(sc)

	ids := make([]int64, 0, 8+len(text)/3)
	var err error
	failed := t.raw.split(text, func(part string, at int, id int64) bool {
		if id >= 0 {
			ids = append(ids, id)
			return true
		}
		ids, err = t.encodePart(sc, ids, part, at == 0)
		return err == nil
	})
	if failed {
		return nil, err
	}
	return ids, nil
}

// maxKept is the most room that a list of a scratch may have to be kept.
const maxKept = 1 << 14

// room is that of the largest list.
func (sc *scratch) room() int {
	return max(cap(sc.pieces), cap(sc.spare), cap(sc.spans), cap(sc.buf), cap(sc.path), cap(sc.ends), cap(sc.word.syms), cap(sc.word.heap))
}

// recycle keeps the scratch of a call for the next one, unless a giant text made it large.
func (t *Tokenizer) recycle(sc *scratch) {
	if sc.room() > maxKept {
		return
	}
	clear(sc.pieces[:cap(sc.pieces)])
	clear(sc.spare[:cap(sc.spare)])
	t.scratch.Put(sc)
}

// encodePart encodes what lies between two added tokens; first says that it opens the text.
func (t *Tokenizer) encodePart(sc *scratch, ids []int64, part string, first bool) ([]int64, error) {
	if t.norm != nil {
		out, kept, err := t.norm.normalize(part)
		if err == nil && len(out) > maxNormalized {
			err = tooLong()
		}
		if err != nil {
			return nil, err
		}
		part, first = out, first && kept
	}
	var err error
	failed := t.normalized.split(part, func(part string, at int, id int64) bool {
		if id >= 0 {
			ids = append(ids, id)
			return true
		}
		ids, err = t.encodePieces(sc, ids, part, first && at == 0)
		return err == nil
	})
	if failed {
		return nil, err
	}
	return ids, nil
}

func (t *Tokenizer) encodePieces(sc *scratch, ids []int64, part string, first bool) ([]int64, error) {
	if part == "" {
		return ids, nil
	}
	sc.pieces = append(sc.pieces[:0], piece{part, first})
	if t.pre != nil {
		if err := t.pre.cut(sc); err != nil {
			return nil, err
		}
	}
	for _, p := range sc.pieces {
		var err error
		if ids, err = t.model.encode(sc, ids, p.text); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Decode returns the text of the ids. Ids without a token are ignored, as in the library;
// skipSpecial also ignores the special added tokens.
func (t *Tokenizer) Decode(ids []int64, skipSpecial bool) (string, error) {
	tokens := make([]string, 0, len(ids))
	size := 0
	for _, id := range ids {
		token, ok := t.tokens[id]
		if !ok || skipSpecial && t.special[token] {
			continue
		}
		tokens = append(tokens, token)
		if size += len(token); size > maxNormalized {
			return "", fmt.Errorf("%w: the tokens of %d ids have more than %d bytes", errText, len(ids), maxNormalized)
		}
	}
	return decodeTokens(t.decode, tokens)
}

// ID returns the id of a token as it is written in the vocabulary (" Yes" is "ĠYes" in a byte-level
// vocabulary).
func (t *Tokenizer) ID(token string) (int64, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Size returns the highest id plus one, including added tokens.
func (t *Tokenizer) Size() int { return t.size }
