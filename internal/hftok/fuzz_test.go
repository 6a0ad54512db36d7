package hftok_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/hftok"
)

// FuzzParse looks for files that make Parse panic, or Encode and Decode with what Parse lets pass.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"bpe_no_unk", "bpe_some_bytes", "wordlevel", "bert_cased", "unigram_charsmap"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(tiny(`"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?i:a|[^b]+)*+"},"behavior":"MergedWithNext","invert":true}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := hftok.Parse(data)
		if err != nil {
			require.Nil(t, tok)
			return
		}
		for _, text := range []string{"", "a", "a b\r\nab  é 1２ <s>", "日本e\u0301\u0301"} {
			ids, err := tok.Encode(text, true)
			if err != nil {
				require.ErrorIs(t, err, hftok.ErrText)
				continue
			}
			_, _ = tok.Decode(ids, false)
			_, _ = tok.EncodePairMax(text, "b", true, 5)
		}
	})
}

// FuzzEncode looks for texts that make Encode or Decode panic, or ids that no token has.
func FuzzEncode(f *testing.F) {
	var toks []*hftok.Tokenizer
	for _, name := range []string{"clip", "llama3", "o200k", "llama2", "bpe_words", "bert_uncased", "unigram_charsmap", "unigram_bytes"} {
		tok, err := hftok.Load(filepath.Join("testdata", name+".json"))
		require.NoError(f, err)
		toks = append(toks, tok)
	}
	var texts fixtureTexts
	readJSON(f, filepath.Join("testdata", "texts.json"), &texts)
	for _, text := range texts.Texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range toks {
			ids, err := tok.Encode(text, true)
			if err != nil {
				require.ErrorIs(t, err, hftok.ErrText)
				continue
			}
			again, err := tok.Encode(text, true)
			require.NoError(t, err)
			require.Equal(t, ids, again)
			for _, id := range ids {
				_, ok := tok.Token(id)
				require.True(t, ok)
				require.Less(t, id, int64(tok.Size()))
			}
			_, err = tok.Decode(ids, true)
			require.NoError(t, err)
		}
	})
}
