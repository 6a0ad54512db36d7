package hftok_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/hftok"
	"github.com/rewardloop/rewardloop/testkit/race"
)

// tiny is a tokenizer.json with room for more sections.
func tiny(sections string) string {
	if sections != "" {
		sections += ","
	}
	return `{` + sections + `"model":{"type":"BPE","unk_token":"u","vocab":{"a":0,"b":1,"ab":2,"u":3},"merges":["a b"]}}`
}

func TestWhatIsNotKnownFailsTheLoadByNameAndPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file string
		class      error
		says       []string
	}{
		{"normalizer", tiny(`"normalizer":{"type":"Reverse"}`), hftok.ErrUnsupported, []string{"normalizer", `"Reverse"`}},
		{"nested pre-tokenizer", tiny(`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"UnicodeScripts"}]}`), hftok.ErrUnsupported, []string{"pre_tokenizer.pretokenizers[1]", `"UnicodeScripts"`}},
		{"post-processor", tiny(`"post_processor":{"type":"Postal"}`), hftok.ErrUnsupported, []string{"post_processor", "Postal"}},
		{"decoder", tiny(`"decoder":{"type":"Sequence","decoders":[{"type":"Morse"}]}`), hftok.ErrUnsupported, []string{"decoder.decoders[0]", "Morse"}},
		{"model", `{"model":{"type":"Neural"}}`, hftok.ErrUnsupported, []string{"model", "Neural"}},
		{"section", tiny(`"afterthought":1`), hftok.ErrUnsupported, []string{"tokenizer.json", "afterthought"}},
		{"version", tiny(`"version":"2.0"`), hftok.ErrUnsupported, []string{"version", "2.0"}},
		{"dropout", `{"model":{"type":"BPE","dropout":0.1,"vocab":{},"merges":[]}}`, hftok.ErrUnsupported, []string{"dropout", "0.1"}},
		{"behavior", tiny(`"pre_tokenizer":{"type":"Punctuation","behavior":"Shuffled"}`), hftok.ErrUnsupported, []string{"behavior", "Shuffled"}},
		{"expression", tiny(`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\h+"},"behavior":"Isolated","invert":false}`), hftok.ErrUnsupported, []string{"pre_tokenizer", "pattern", `\\h`}},
		{"set in a set", tiny(`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated","invert":false}`), hftok.ErrUnsupported, []string{"pattern", "within a set"}},
		{"group", tiny(`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?m:a)"},"behavior":"Isolated","invert":false}`), hftok.ErrUnsupported, []string{"(?m:a"}},
		{"two templates", tiny(`"post_processor":{"type":"Sequence","processors":[{"type":"BertProcessing","sep":["a",0],"cls":["b",1]},{"type":"BertProcessing","sep":["a",0],"cls":["b",1]}]}`), hftok.ErrUnsupported, []string{"processors[1]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := hftok.Parse([]byte(c.file))
			require.ErrorIs(t, err, c.class)
			for _, s := range c.says {
				assert.ErrorContains(t, err, s)
			}
		})
	}
}

func TestWhatIsAtOddsWithItselfFailsTheLoad(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"type":"Sequence","normalizers":[`, 40) + `{"type":"NFC"}` + strings.Repeat(`]}`, 40)
	for name, file := range map[string]string{
		"is not JSON":          `{`,
		"not an object":        `[]`,
		"the value is null":    `null`,
		"no model":             `{}`,
		"has no merges":        `{"model":{"type":"BPE","vocab":{}}}`,
		"is not a pair":        `{"model":{"type":"BPE","vocab":{},"merges":["ab"]}}`,
		"has 3 parts":          `{"model":{"type":"BPE","vocab":{},"merges":[["a","b","c"]]}}`,
		"not in the vocab":     `{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}}`,
		"out of bounds":        `{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`,
		"have the same id":     `{"model":{"type":"BPE","vocab":{"a":1,"b":1},"merges":[]}}`,
		"shorter than":         `{"model":{"type":"BPE","continuing_subword_prefix":"##","vocab":{"a":0},"merges":["a a"]}}`,
		"unk_id 5":             `{"model":{"type":"Unigram","unk_id":5,"vocab":[["a",0]]}}`,
		"has no vocab":         `{"model":{"type":"Unigram"}}`,
		"sequences deep":       tiny(`"normalizer":` + deep),
		"has the id 9":         tiny(`"added_tokens":[{"id":9,"content":"x","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`),
		"is empty":             tiny(`"added_tokens":[{"id":4,"content":"","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`),
		"no token has the id":  tiny(`"post_processor":{"type":"BertProcessing","sep":["a",77],"cls":["b",1]}`),
		"neither a text":       tiny(`"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"pair":[],"special_tokens":{}}`),
		"no list of ids":       tiny(`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{}}`),
		"precompiled_charsmap": tiny(`"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="}`),
		"has 300 bytes":        tiny(`"normalizer":{"type":"Prepend","prepend":"` + strings.Repeat("a", 300) + `"}`),
		"is not one character": tiny(`"pre_tokenizer":{"type":"CharDelimiterSplit","delimiter":"ab"}`),
		"add_prefix_space is":  tiny(`"pre_tokenizer":{"type":"Metaspace","replacement":"_","add_prefix_space":false,"prepend_scheme":"always"}`),
		"has no type":          tiny(`"normalizer":{"lowercase":true}`),
		"has no behavior":      tiny(`"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"invert":false}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := hftok.Parse([]byte(file))
			require.Error(t, err)
			assert.True(t, errors.Is(err, hftok.ErrInvalid) || errors.Is(err, hftok.ErrUnsupported), "%v", err)
			if name != "is not JSON" {
				assert.ErrorContains(t, err, name)
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	_, err := hftok.Load(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte(`{}`), 0o600))
	_, err = hftok.Load(path)
	require.ErrorIs(t, err, hftok.ErrInvalid)
	assert.ErrorContains(t, err, path)
}

func TestATextThatCannotBeEncodedFailsAlone(t *testing.T) {
	t.Parallel()
	tok, err := hftok.Parse([]byte(tiny("")))
	require.NoError(t, err)
	_, err = tok.Encode("a\xff", true)
	require.ErrorIs(t, err, hftok.ErrText)
	_, err = tok.Encode(strings.Repeat("a", hftok.MaxText+1), true)
	require.ErrorIs(t, err, hftok.ErrText)
	ids, err := tok.Encode("abxba", true)
	require.NoError(t, err)
	assert.Equal(t, []int64{2, 3, 1, 0}, ids)

	without, err := hftok.Parse([]byte(`{"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":9,"vocab":{"a":0}}}`))
	require.NoError(t, err)
	_, err = without.Encode("b", true)
	require.ErrorIs(t, err, hftok.ErrText)
	assert.ErrorContains(t, err, "[UNK]")
}

func TestATextMayNotBlowUp(t *testing.T) {
	t.Parallel()
	step := `{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("a", 200) + `"}`
	tok, err := hftok.Parse([]byte(tiny(`"normalizer":{"type":"Sequence","normalizers":[` + strings.Repeat(step+",", 9) + step + `]}`)))
	require.NoError(t, err)
	_, err = tok.Encode("aaaa", true)
	require.ErrorIs(t, err, hftok.ErrText)
}

func TestANormalFormMayNotBlowATextUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	if race.Enabled {
		t.Skip("the race detector makes it ten times dearer")
	}
	tok, err := hftok.Parse([]byte(tiny(`"normalizer":{"type":"NFKC"}`)))
	require.NoError(t, err)
	// A ligature of 3 bytes that is 18 characters.
	_, err = tok.Encode(strings.Repeat("\ufdfa", hftok.MaxText/3), true)
	require.ErrorIs(t, err, hftok.ErrText)
}

func TestAGiantTextLeavesNothingGiantBehind(t *testing.T) {
	t.Parallel()
	tok, err := hftok.Parse([]byte(tiny(`"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"FixedLength","length":1},{"type":"WhitespaceSplit"}]}`)))
	require.NoError(t, err)
	for range 20 { // What is kept, the collector may take at any time.
		ids, err := tok.Encode(strings.Repeat(" ", 20_000), true)
		require.NoError(t, err)
		assert.Empty(t, ids)
		room, limit := tok.Kept()
		require.LessOrEqual(t, room, limit)
	}
}

func TestAHopelessExpressionIsStopped(t *testing.T) {
	t.Parallel()
	tok, err := hftok.Parse([]byte(tiny(`"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a+)+$"},"behavior":"Isolated","invert":false}`)))
	require.NoError(t, err)
	_, err = tok.Encode(strings.Repeat("a", 60)+"b", true)
	require.ErrorIs(t, err, hftok.ErrText)
}

func TestAWordOfAMillionCharactersIsEncoded(t *testing.T) {
	t.Parallel()
	tok, err := hftok.Parse([]byte(tiny("")))
	require.NoError(t, err)
	ids, err := tok.Encode(strings.Repeat("ab", 1<<18), true)
	require.NoError(t, err)
	assert.Len(t, ids, 1<<18)
}

func TestTheCacheOfWordsIsBoundedAndSharedSafely(t *testing.T) {
	t.Parallel()
	tok, err := hftok.Load(filepath.Join("testdata", "clip.json"))
	require.NoError(t, err)
	want, err := tok.Encode("a photo of a cat", true)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 3000 {
				_, err := tok.Encode(fmt.Sprintf("word%d x%dy", i, g), true)
				got, again := tok.Encode("a photo of a cat", true)
				if err != nil || again != nil || !slices.Equal(want, got) {
					t.Errorf("word %d: %v; the prompt: %v, %v", i, err, got, again)
					return
				}
			}
		})
	}
	wg.Wait()
	n, limit := tok.Words()
	assert.LessOrEqual(t, n, limit)
	assert.Equal(t, 8192, limit)
}

func TestDecodeReplacesBytesThatAreNoText(t *testing.T) {
	t.Parallel()
	tok, err := hftok.Load(filepath.Join("testdata", "gpt2.json"))
	require.NoError(t, err)
	for text, cut := range map[string][]int{"é": {1}, "日": {1, 2}, "😀": {1, 2, 3}} {
		ids, err := tok.Encode("x"+text, false)
		require.NoError(t, err)
		for _, n := range cut {
			if n >= len(ids) {
				continue
			}
			got, err := tok.Decode(ids[:len(ids)-n], false)
			require.NoError(t, err)
			assert.LessOrEqual(t, strings.Count(got, "\uFFFD"), 1, "%q less %d", text, n)
		}
	}
	got, err := tok.Decode([]int64{-1, 1 << 40}, false)
	require.NoError(t, err)
	assert.Empty(t, got)
}

// Files carry keys of other components of the same section, as Command-R's does; the reference
// library ignores them.
func TestKeysThatAComponentDoesNotHaveAreIgnored(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		tiny(`"normalizer":{"type":"Lowercase","locale":"tr"}`),
		tiny(`"post_processor":{"type":"TemplateProcessing","add_prefix_space":false,"trim_offsets":false,"use_regex":true,` +
			`"single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{}}`),
	} {
		_, err := hftok.Parse([]byte(file))
		require.NoError(t, err)
	}
}
