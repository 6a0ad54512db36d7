package hftok

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that stands outside the model's vocabulary or is to be found before the model
// sees the text.
type addedToken struct {
	content                     string
	id                          int64
	word, left, right           bool // single_word, lstrip, rstrip
	afterNormalizing, isSpecial bool
}

// addedMatcher finds added tokens: the leftmost, and of these the longest.
type addedMatcher struct {
	tokens []addedToken
	tree   *trie // to indices of tokens
	starts [256]bool
}

// split hands text to part in order, cut at the added tokens: id < 0 for what lies between them, at is
// its place in bytes. It stops and returns true where part returns false. A nil matcher cuts nothing.
func (m *addedMatcher) split(text string, part func(text string, at int, id int64) bool) (stopped bool) {
	if m == nil {
		return !part(text, 0, -1)
	}
	done := 0
	for i := 0; i < len(text); {
		if !m.starts[text[i]] {
			i++
			continue
		}
		k, n := m.tree.longest(text[i:])
		if n == 0 {
			i++
			continue
		}
		tok := &m.tokens[k]
		from, to := i, i+n
		i = to
		if tok.word && !standsAlone(text, from, to) {
			continue
		}
		if tok.left {
			from = max(done, len(strings.TrimRightFunc(text[:from], unicode.IsSpace)))
		}
		if tok.right {
			to = len(text) - len(strings.TrimLeftFunc(text[to:], unicode.IsSpace))
		}
		if done < from && !part(text[done:from], done, -1) {
			return true
		}
		// A token that was stripped to nothing is dropped, as any empty piece is.
		if from < to && !part("", from, tok.id) {
			return true
		}
		done = to
	}
	return done < len(text) && !part(text[done:], done, -1)
}

// standsAlone reports whether no word character touches text[from:to].
func standsAlone(text string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:from])
	after, _ := utf8.DecodeRuneInString(text[to:])
	return (from == 0 || !isWord(before)) && (to == len(text) || !isWord(after))
}

// readAdded reads the list of added tokens and completes the vocabulary with them.
func (t *Tokenizer) readAdded(raw json.RawMessage, vocab *vocabulary) error {
	t.ids, t.tokens, t.special = vocab.ids, vocab.tokens, map[string]bool{}
	t.size = int(vocab.top) + 1
	var list []json.RawMessage
	if !absent(raw) {
		if err := json.Unmarshal(raw, &list); err != nil {
			return fmt.Errorf("%w: added_tokens: %w", errInvalid, err)
		}
	}
	if len(list) > maxAdded {
		return fmt.Errorf("%w: %d added_tokens are more than %d", errInvalid, len(list), maxAdded)
	}
	// The library numbers added tokens itself: those of the vocabulary keep their ids, the others
	// follow on it. A file that says otherwise would get other ids there.
	next := int64(vocab.size)
	tokens := make([]addedToken, 0, len(list))
	for i, raw := range list {
		tok, err := readAddedToken(fmt.Sprintf("added_tokens[%d]", i), raw)
		if err != nil {
			return err
		}
		id, known := t.ids[tok.content]
		if !known {
			id = next
			next++
		}
		if id != tok.id {
			return fmt.Errorf("%w: added_tokens[%d]: %q has the id %d, but in this vocabulary it is %d", errInvalid, i, short(tok.content), tok.id, id)
		}
		t.ids[tok.content], t.tokens[id] = id, tok.content
		t.size = max(t.size, int(id)+1)
		if tok.isSpecial {
			t.special[tok.content] = true
		}
		tokens = append(tokens, tok)
	}
	return t.buildMatchers(tokens)
}

func readAddedToken(at string, raw json.RawMessage) (addedToken, error) {
	if absent(raw) {
		return addedToken{}, fmt.Errorf("%w: %s is null", errInvalid, at)
	}
	c, err := openObject(at, raw)
	if err != nil {
		return addedToken{}, err
	}
	var tok addedToken
	tok.content = c.text("content", maxToken)
	c.require("id", &tok.id)
	c.require("single_word", &tok.word)
	c.require("lstrip", &tok.left)
	c.require("rstrip", &tok.right)
	c.require("normalized", &tok.afterNormalizing)
	c.require("special", &tok.isSpecial)
	if c.err == nil && tok.content == "" {
		c.fail(fmt.Errorf("%w: %s is empty", errInvalid, at))
	}
	return tok, c.close()
}

// buildMatchers sorts the added tokens by when they are looked for. Special ones come first: of two
// that read the same, the first is found.
func (t *Tokenizer) buildMatchers(tokens []addedToken) error {
	ordered := make([]addedToken, 0, len(tokens))
	for _, special := range []bool{true, false} {
		for _, tok := range tokens {
			if tok.isSpecial == special {
				ordered = append(ordered, tok)
			}
		}
	}
	for _, tok := range ordered {
		if !tok.afterNormalizing {
			t.raw = t.raw.with(tok, tok.content)
			continue
		}
		content := tok.content
		if t.norm != nil {
			var err error
			if content, _, err = t.norm.normalize(content); err != nil {
				return fmt.Errorf("%w: added token %q: %w", errInvalid, short(tok.content), err)
			}
		}
		if content == "" || len(content) > maxToken*4 {
			return fmt.Errorf("%w: added token %q has %d bytes after normalisation", errUnsupported, short(tok.content), len(content))
		}
		t.normalized = t.normalized.with(tok, content)
	}
	return nil
}

func (m *addedMatcher) with(tok addedToken, content string) *addedMatcher {
	if m == nil {
		m = &addedMatcher{tree: newTrie(16)}
	}
	m.tree.insertFirst(content, int32(len(m.tokens)))
	m.tokens = append(m.tokens, tok)
	m.starts[content[0]] = true
	return m
}
