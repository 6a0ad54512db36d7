package hftok

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// bpe is byte-pair encoding: a word is taken apart into characters, and the neighbours whose merge was
// learnt first are joined until no pair is left that was.
type bpe struct {
	vocab  *vocabulary
	merges *pairTable // left id<<32 | right id -> rank<<32 | new id
	cache  *wordCache

	unk            string // "": unknown characters are dropped
	unkID          int32  // -1: not in the vocabulary
	prefix, suffix string // continuing_subword_prefix, end_of_word_suffix
	fuseUnk        bool
	wholeFirst     bool        // ignore_merges: a word that is a token is taken as it is
	fallback       *[256]int32 // byte_fallback: ids of <0x00> to <0xFF>, -1 where missing; nil: off

	// bytes is set where the word comes as it is and each byte is a character of the byte-level
	// alphabet: its id within a word, at the start, at the end and alone.
	bytes *[4][256]int32
}

const (
	inWord = iota
	atStart
	atEnd
	alone
)

const noID = int32(-1)

func readBPE(c *component, byteLevel bool) (*bpe, *vocabulary, error) {
	m := &bpe{unkID: noID, cache: newWordCache()}
	var dropout float64
	if c.value("dropout", &dropout); dropout != 0 {
		c.fail(fmt.Errorf("%w: model: dropout %g makes the ids random", errUnsupported, dropout))
	}
	for key, s := range map[string]*string{"unk_token": &m.unk, "continuing_subword_prefix": &m.prefix, "end_of_word_suffix": &m.suffix} {
		c.value(key, s)
		c.bounded(key, *s, maxToken)
	}
	m.fuseUnk = c.boolean("fuse_unk", false)
	m.wholeFirst = c.boolean("ignore_merges", false)
	fallback := c.boolean("byte_fallback", false)
	m.vocab = readVocab(c)
	merges := readMerges(c)
	if err := c.close(); err != nil {
		return nil, nil, err
	}
	if err := m.learn(merges); err != nil {
		return nil, nil, err
	}
	if id, ok := m.vocab.ids[m.unk]; ok && m.unk != "" {
		m.unkID = int32(id)
	}
	if fallback {
		m.fallback = byteTokens(m.vocab)
	}
	if byteLevel {
		m.bytes = &[4][256]int32{}
		for b := range 256 {
			s := string(byteAlphabet()[b])
			for where, s := range [4]string{inWord: m.prefix + s, atStart: s, atEnd: m.prefix + s + m.suffix, alone: s + m.suffix} {
				m.bytes[where][b] = m.vocab.id(s)
			}
		}
	}
	return m, m.vocab, nil
}

// id returns the id of a token, or noID.
func (v *vocabulary) id(token string) int32 {
	if id, ok := v.ids[token]; ok {
		return int32(id)
	}
	return noID
}

// byteTokens finds the tokens <0x00> to <0xFF>.
func byteTokens(v *vocabulary) *[256]int32 {
	var t [256]int32
	for b := range t {
		t[b] = v.id(fmt.Sprintf("<0x%02X>", b))
	}
	return &t
}

// readMerges reads the merges in both forms, ["a b", …] and [["a", "b"], …].
func readMerges(c *component) [][2]string {
	raw := c.raw("merges")
	var pairs [][2]string
	var lines []string
	switch {
	case raw == nil:
		c.fail(fmt.Errorf("%w: model has no merges", errInvalid))
	case json.Unmarshal(raw, &lines) == nil:
		pairs = make([][2]string, 0, len(lines))
		for i, line := range lines {
			if strings.HasPrefix(line, "#version") {
				continue
			}
			a, b, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(b, " ") {
				c.fail(fmt.Errorf("%w: model: merges[%d]: %q is not a pair", errInvalid, i, short(line)))
				return nil
			}
			pairs = append(pairs, [2]string{a, b})
		}
	default:
		var lists [][]string
		if err := json.Unmarshal(raw, &lists); err != nil {
			c.fail(fmt.Errorf("%w: model: merges: %w", errInvalid, err))
		}
		pairs = make([][2]string, len(lists))
		for i, l := range lists {
			if len(l) != 2 {
				c.fail(fmt.Errorf("%w: model: merges[%d] has %d parts", errInvalid, i, len(l)))
				return nil
			}
			pairs[i] = [2]string{l[0], l[1]}
		}
	}
	if len(pairs) > maxMerges {
		c.fail(fmt.Errorf("%w: model: %d merges are more than %d", errInvalid, len(pairs), maxMerges))
	}
	return pairs
}

// learn builds the table of merges; the last of equal pairs counts, as in the library's map.
func (m *bpe) learn(merges [][2]string) error {
	m.merges = newPairTable(len(merges))
	for rank, p := range merges {
		if len(p[1]) < len(m.prefix) {
			return fmt.Errorf("%w: model: merges[%d]: %q is shorter than the prefix of continuing words", errInvalid, rank, short(p[1]))
		}
		joined := p[0] + p[1][len(m.prefix):]
		for _, token := range []string{p[0], p[1], joined} {
			if m.vocab.id(token) == noID {
				return fmt.Errorf("%w: model: merges[%d]: %q is not in the vocabulary", errInvalid, rank, short(token))
			}
		}
		m.merges.put(pairKey(m.vocab.id(p[0]), m.vocab.id(p[1])), uint64(rank)<<32|uint64(m.vocab.id(joined)))
	}
	return nil
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

func (m *bpe) encode(sc *scratch, dst []int64, word string) ([]int64, error) {
	return m.cache.encode(dst, word, func(dst []int64) ([]int64, error) {
		if m.wholeFirst {
			if id := m.wholeID(sc, word); id != noID {
				return append(dst, int64(id)), nil
			}
		}
		sc.word.reset()
		var err error
		if m.bytes != nil {
			err = m.startBytes(&sc.word, word)
		} else {
			err = m.startChars(sc, word)
		}
		if err != nil {
			return nil, err
		}
		sc.word.merge(m.merges)
		return sc.word.appendIDs(dst), nil
	})
}

// wholeID looks for the word itself in the vocabulary.
func (m *bpe) wholeID(sc *scratch, word string) int32 {
	if m.bytes == nil {
		return m.vocab.id(word)
	}
	if len(word) > maxToken {
		return noID
	}
	sc.buf = appendByteLevel(sc.buf[:0], word)
	if id, ok := m.vocab.ids[string(sc.buf)]; ok {
		return int32(id)
	}
	return noID
}

// startBytes takes a word apart into bytes.
func (m *bpe) startBytes(w *bpeWord, word string) error {
	pending := false
	for i := range len(word) {
		where := inWord
		switch {
		case len(word) == 1:
			where = alone
		case i == 0:
			where = atStart
		case i == len(word)-1:
			where = atEnd
		}
		id := m.bytes[where][word[i]]
		if id == noID {
			var err error
			if pending, err = m.unknown(w, byteLevelChar(m, where, word[i]), pending); err != nil {
				return err
			}
			continue
		}
		pending = m.flush(w, pending)
		w.add(id)
	}
	m.flush(w, pending)
	return nil
}

// byteLevelChar is the string that stands for a byte at a place in a word.
func byteLevelChar(m *bpe, where int, b byte) string {
	s := string(byteAlphabet()[b])
	if where == inWord || where == atEnd {
		s = m.prefix + s
	}
	if where == atEnd || where == alone {
		s += m.suffix
	}
	return s
}

// startChars takes a word apart into characters.
func (m *bpe) startChars(sc *scratch, word string) error {
	w := &sc.word
	pending := false
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		s := word[i : i+n]
		if i > 0 && m.prefix != "" || i+n == len(word) && m.suffix != "" {
			sc.buf = sc.buf[:0]
			if i > 0 {
				sc.buf = append(sc.buf, m.prefix...)
			}
			sc.buf = append(sc.buf, s...)
			if i+n == len(word) {
				sc.buf = append(sc.buf, m.suffix...)
			}
			s = string(sc.buf)
		}
		i += n
		if id := m.vocab.id(s); id != noID {
			pending = m.flush(w, pending)
			w.add(id)
			continue
		}
		var err error
		if pending, err = m.unknown(w, s, pending); err != nil {
			return err
		}
	}
	m.flush(w, pending)
	return nil
}

// unknown adds what stands for a string that is no token: its bytes, or the unknown token. The latter
// stays pending, so that several can be fused; bytes do not end a pending one, as in the library.
func (m *bpe) unknown(w *bpeWord, s string, pending bool) (bool, error) {
	if m.fallback != nil && m.allBytes(s) {
		for i := range len(s) {
			w.add(m.fallback[s[i]])
		}
		return pending, nil
	}
	if m.unk == "" {
		return pending, nil
	}
	if m.unkID == noID {
		return false, noUnknown(s, m.unk)
	}
	if pending && !m.fuseUnk {
		w.add(m.unkID)
	}
	return true, nil
}

func (m *bpe) allBytes(s string) bool {
	for i := range len(s) {
		if m.fallback[s[i]] == noID {
			return false
		}
	}
	return true
}

// flush adds a pending unknown token.
func (m *bpe) flush(w *bpeWord, pending bool) bool {
	if pending {
		w.add(m.unkID)
	}
	return false
}

// bpeWord is a word on its way through the merges.
type bpeWord struct {
	syms symbols
	heap []candidate
}

type symbols []symbol

// symbol is a part of the word. In short words the slice is the word; in long ones the parts are linked.
type symbol struct {
	id         int32
	prev, next int32  // indices; -1: none. Long words only
	rank       uint32 // of the merge with the next part, math.MaxUint32: none. Short words only
	to         int32  // what that merge gives
	gone       bool   // merged into the part before. Long words only
}

// candidate is a merge that was possible when it was found.
type candidate struct {
	rank uint32
	pos  int32
	to   int32
}

// shortWord is the length up to which the word is searched for its best merge again and again. With a
// vocabulary of 128,000 that took 68 ns a byte against 128 with the heap for English words (5 bytes), 204
// against 255 for 32 bytes and 254 against 279 for 64; it grows with the square, so the limit is below.
const shortWord = 24

func (w *bpeWord) reset() { w.syms = w.syms[:0] }

func (w *bpeWord) add(id int32) { w.syms = append(w.syms, symbol{id: id}) }

func (w *bpeWord) appendIDs(dst []int64) []int64 {
	for i := range w.syms {
		if !w.syms[i].gone {
			dst = append(dst, int64(w.syms[i].id))
		}
	}
	return dst
}

func (w *bpeWord) merge(table *pairTable) {
	switch {
	case len(w.syms) < 2:
	case len(w.syms) <= shortWord:
		w.mergeShort(table)
	default:
		w.mergeLong(table)
	}
}

// mergeShort joins the pair of the lowest rank, the leftmost of equals, until there is none.
func (w *bpeWord) mergeShort(table *pairTable) {
	s := w.syms
	for i := range s {
		s.rankAt(i, table)
	}
	for {
		best, rank := -1, uint32(math.MaxUint32)
		for i := range s {
			if s[i].rank < rank {
				best, rank = i, s[i].rank
			}
		}
		if best < 0 {
			break
		}
		s[best].id = s[best].to
		copy(s[best+1:], s[best+2:])
		s = s[:len(s)-1]
		s.rankAt(best, table)
		if best > 0 {
			s.rankAt(best-1, table)
		}
	}
	w.syms = s
}

// mergeLong does the same with a heap: n·log n for a text that comes as one word.
func (w *bpeWord) mergeLong(table *pairTable) {
	s := w.syms
	w.heap = w.heap[:0]
	for i := range s {
		s[i].prev, s[i].next = int32(i-1), int32(i+1)
	}
	s[len(s)-1].next = -1
	for i := range s {
		w.push(table, int32(i))
	}
	for len(w.heap) > 0 {
		c := w.pop()
		left := &s[c.pos]
		if left.gone || left.next < 0 {
			continue
		}
		right := &s[left.next]
		if v, ok := table.get(pairKey(left.id, right.id)); !ok || int32(uint32(v)) != c.to {
			continue // the pair has changed since
		}
		left.id, right.gone = c.to, true
		left.next = right.next
		if right.next >= 0 {
			s[right.next].prev = c.pos
		}
		if left.prev >= 0 {
			w.push(table, left.prev)
		}
		w.push(table, c.pos)
	}
}

// rankAt looks up the merge of part i with the next one.
func (s symbols) rankAt(i int, table *pairTable) {
	s[i].rank = math.MaxUint32
	if i+1 == len(s) {
		return
	}
	if v, ok := table.get(pairKey(s[i].id, s[i+1].id)); ok {
		s[i].rank, s[i].to = uint32(v>>32), int32(uint32(v))
	}
}

// before orders the heap: the lowest rank first, the leftmost of equals.
func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

// push puts the merge of the part at pos with the next one on the heap, where there is one.
func (w *bpeWord) push(table *pairTable, pos int32) {
	next := w.syms[pos].next
	if next < 0 {
		return
	}
	v, ok := table.get(pairKey(w.syms[pos].id, w.syms[next].id))
	if !ok {
		return
	}
	w.heap = append(w.heap, candidate{uint32(v >> 32), pos, int32(uint32(v))})
	h := w.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (w *bpeWord) pop() candidate {
	h := w.heap
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(h[i]) {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	w.heap = h
	return top
}
