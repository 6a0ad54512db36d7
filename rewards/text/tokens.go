package text

import (
	"iter"
	"strings"
	"unicode/utf8"
)

// The ways to cut a text into tokens.
const (
	simpleTokens = "simple"
	charTokens   = "chars"
)

// tokenizerOption says how a text becomes tokens. It is part of the options of
// the scorers that need it.
type tokenizerOption struct {
	// TokenizerType is "simple" (default): between whitespace; or "chars": every
	// character that is no whitespace, for scripts without spaces.
	TokenizerType string `json:"tokenizer_type"`
}

func (o tokenizerOption) validate() error {
	return oneOf("tokenizer_type", o.TokenizerType, simpleTokens, charTokens)
}

const tokenizerDoc = "simple: words between whitespace; chars: single characters, for scripts without spaces"

// tokens cuts s.
func (o tokenizerOption) tokens(s string) iter.Seq[string] {
	words := strings.FieldsFuncSeq(s, isSpace)
	if o.TokenizerType != charTokens {
		return words
	}
	return func(yield func(string) bool) {
		for word := range words {
			for word != "" {
				_, n := utf8.DecodeRuneInString(word)
				if !yield(word[:n]) {
					return
				}
				word = word[n:]
			}
		}
	}
}
