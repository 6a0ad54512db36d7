package hftok

import (
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"
)

// unigram covers a word with the tokens whose scores (log probabilities) add up to the most, found by
// Viterbi's algorithm.
type unigram struct {
	cache    *wordCache
	tree     *trie
	scores   []float64
	unkID    int32       // noID: none
	unkScore float64     // the lowest score less 10, as in sentencepiece
	fallback *[256]int32 // ids of <0x00> to <0xFF>; nil: off
}

// pathNode is the best way to reach a byte of the word.
type pathNode struct {
	score float64
	from  int32 // where its last token starts; -1: not reached
	id    int32
}

func readUnigram(c *component) (*unigram, *vocabulary, error) {
	m := &unigram{cache: newWordCache(), unkID: noID}
	unk := int64(noID)
	c.value("unk_id", &unk)
	fallback := c.boolean("byte_fallback", false)
	var pairs []scored
	c.require("vocab", &pairs)
	if err := c.close(); err != nil {
		return nil, nil, err
	}
	if len(pairs) > maxVocab {
		return nil, nil, fmt.Errorf("%w: model: a vocabulary of %d tokens has more than %d", errInvalid, len(pairs), maxVocab)
	}
	if unk < -1 || unk >= int64(len(pairs)) {
		return nil, nil, fmt.Errorf("%w: model: unk_id %d is not in a vocabulary of %d tokens", errInvalid, unk, len(pairs))
	}
	m.unkID = int32(unk)
	vocab := &vocabulary{
		ids: make(map[string]int64, len(pairs)), tokens: make(map[int64]string, len(pairs)),
		size: len(pairs), top: int64(len(pairs)) - 1,
	}
	m.tree = newTrie(4 * len(pairs))
	m.scores = make([]float64, len(pairs))
	lowest := math.Inf(1)
	for i, p := range pairs {
		if len(p.token) > maxToken {
			return nil, nil, fmt.Errorf("%w: model: vocab[%d]: %q is too long", errInvalid, i, short(p.token))
		}
		m.scores[i] = p.score
		lowest = min(lowest, p.score)
		vocab.ids[p.token], vocab.tokens[int64(i)] = int64(i), p.token
		if p.token != "" {
			m.tree.insert(p.token, int32(i))
		}
	}
	m.unkScore = lowest - 10
	if fallback {
		m.fallback = byteTokens(vocab)
	}
	return m, vocab, nil
}

// scored is a vocabulary's entry: ["▁the", -3.2].
type scored struct {
	token string
	score float64
}

func (s *scored) UnmarshalJSON(b []byte) error {
	var v [2]json.RawMessage
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if err := json.Unmarshal(v[0], &s.token); err != nil {
		return err
	}
	return json.Unmarshal(v[1], &s.score)
}

func (m *unigram) encode(sc *scratch, dst []int64, word string) ([]int64, error) {
	return m.cache.encode(dst, word, func(dst []int64) ([]int64, error) {
		if err := m.search(sc, word); err != nil {
			return nil, err
		}
		return m.trace(sc, dst, word), nil
	})
}

// search fills sc.path with the best way to each byte of the word that a character starts at.
func (m *unigram) search(sc *scratch, word string) error {
	sc.path = append(sc.path[:0], make([]pathNode, len(word)+1)...)
	path := sc.path
	for i := range path {
		path[i].from = -1
	}
	for i := 0; i < len(word); {
		_, width := utf8.DecodeRuneInString(word[i:])
		here := path[i].score
		single := false
		node := uint64(0)
		for end := i; end < len(word); {
			next, ok := m.tree.steps.get(node<<8 | uint64(word[end]))
			if !ok {
				break
			}
			end++
			node = next
			if id := m.tree.ids[node]; id >= 0 {
				path[end].improve(here+m.scores[id], i, id)
				single = single || end == i+width
			}
		}
		if !single {
			if m.unkID == noID {
				return noUnknown(word[i:i+width], "unk_id")
			}
			path[i+width].improve(here+m.unkScore, i, m.unkID)
		}
		i += width
	}
	return nil
}

func (n *pathNode) improve(score float64, from int, id int32) {
	if n.from < 0 || score > n.score {
		*n = pathNode{score, int32(from), id}
	}
}

// trace appends the ids along the best path. Neighbouring unknowns are one string, which may then be a
// token, or bytes, or one unknown token.
func (m *unigram) trace(sc *scratch, dst []int64, word string) []int64 {
	sc.ends = sc.ends[:0]
	for end := int32(len(word)); end > 0; end = sc.path[end].from {
		sc.ends = append(sc.ends, end)
	}
	from := int32(0)
	for i := len(sc.ends) - 1; i >= 0; i-- {
		end := sc.ends[i]
		id := sc.path[end].id
		if id != m.unkID {
			dst = append(dst, int64(id))
			from = end
			continue
		}
		for i > 0 && sc.path[sc.ends[i-1]].id == m.unkID {
			i--
			end = sc.ends[i]
		}
		dst = m.unknown(dst, word[from:end])
		from = end
	}
	return dst
}

func (m *unigram) unknown(dst []int64, s string) []int64 {
	if id := m.tree.find(s); id >= 0 {
		return append(dst, int64(id))
	}
	if m.fallback != nil {
		at := len(dst)
		for i := range len(s) {
			if m.fallback[s[i]] == noID {
				return append(dst[:at], int64(m.unkID))
			}
			dst = append(dst, int64(m.fallback[s[i]]))
		}
		return dst
	}
	return append(dst, int64(m.unkID))
}
