package hftok

import (
	"fmt"
	"unicode/utf8"
)

// wordPiece takes the longest token that begins a word, then the longest that goes on from there. A word
// that cannot be covered so is unknown as a whole.
type wordPiece struct {
	vocab    *vocabulary
	cache    *wordCache
	unk      string
	unkID    int32
	prefix   string // of tokens within a word: "##"
	maxChars int    // longer words are unknown
	longest  int    // bytes of the longest token
}

func readWordPiece(c *component) (*wordPiece, *vocabulary, error) {
	m := &wordPiece{cache: newWordCache()}
	m.unk = c.text("unk_token", maxToken)
	m.prefix = c.text("continuing_subword_prefix", maxToken)
	c.require("max_input_chars_per_word", &m.maxChars)
	if m.maxChars < 0 {
		c.fail(fmt.Errorf("%w: model: max_input_chars_per_word is %d", errInvalid, m.maxChars))
	}
	m.vocab = readVocab(c)
	if err := c.close(); err != nil {
		return nil, nil, err
	}
	m.unkID = m.vocab.id(m.unk)
	for token := range m.vocab.ids {
		m.longest = max(m.longest, len(token))
	}
	return m, m.vocab, nil
}

func (m *wordPiece) encode(sc *scratch, dst []int64, word string) ([]int64, error) {
	return m.cache.encode(dst, word, func(dst []int64) ([]int64, error) {
		at := len(dst)
		whole := utf8.RuneCountInString(word) <= m.maxChars
		for from := 0; whole && from < len(word); {
			id, n := m.longestAt(sc, word, from)
			if whole = n > 0; whole {
				dst = append(dst, int64(id))
				from += n
			}
		}
		if whole {
			return dst, nil
		}
		if m.unkID == noID {
			return nil, noUnknown(word, m.unk)
		}
		return append(dst[:at], int64(m.unkID)), nil
	})
}

// longestAt finds the longest token at a place in the word and how many bytes of the word it covers.
func (m *wordPiece) longestAt(sc *scratch, word string, from int) (id int32, n int) {
	prefix := 0
	sc.buf = sc.buf[:0]
	if from > 0 {
		prefix = len(m.prefix)
		sc.buf = append(sc.buf, m.prefix...)
	}
	rest := word[from:]
	if most := m.longest - prefix; len(rest) > most {
		end := max(most, 0)
		for end > 0 && !utf8.RuneStart(rest[end]) {
			end--
		}
		rest = rest[:end]
	}
	sc.buf = append(sc.buf, rest...)
	for end := len(rest); end > 0; {
		if id, ok := m.vocab.ids[string(sc.buf[:prefix+end])]; ok {
			return int32(id), end
		}
		_, k := utf8.DecodeLastRuneInString(rest[:end])
		end -= k
	}
	return noID, 0
}

// wordLevel knows whole words only.
type wordLevel struct {
	vocab *vocabulary
	unk   string
}

func readWordLevel(c *component) (*wordLevel, *vocabulary, error) {
	m := &wordLevel{unk: c.text("unk_token", maxToken), vocab: readVocab(c)}
	if err := c.close(); err != nil {
		return nil, nil, err
	}
	return m, m.vocab, nil
}

func (m *wordLevel) encode(_ *scratch, dst []int64, word string) ([]int64, error) {
	if id, ok := m.vocab.ids[word]; ok {
		return append(dst, id), nil
	}
	if id, ok := m.vocab.ids[m.unk]; ok {
		return append(dst, id), nil
	}
	return nil, noUnknown(word, m.unk)
}
