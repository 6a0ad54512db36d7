package hftok_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/hftok"
)

// The fixtures are written by testdata/make_fixtures.py with Python's tokenizers 0.22.2.

type fixtureTexts struct {
	Texts []string
	Pairs [][2]string
}

type encoding struct{ IDs, Types, Mask []int64 }

type fixture struct {
	Plain, Special          [][]int64
	Decoded, DecodedSpecial []string
	Pairs                   []encoding
	Limits                  []int
	Max, PairMax            [][][]int64
}

func readTexts(tb testing.TB) fixtureTexts {
	tb.Helper()
	var texts fixtureTexts
	readJSON(tb, filepath.Join("testdata", "texts.json"), &texts)
	return texts
}

// eachFixture runs a test for every tokenizer below testdata.
func eachFixture(t *testing.T, run func(t *testing.T, tok *hftok.Tokenizer, texts fixtureTexts, want fixture)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.golden.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 17)
	for _, file := range files {
		base := strings.TrimSuffix(file, ".golden.json")
		t.Run(filepath.Base(base), func(t *testing.T) {
			t.Parallel()
			tok, err := hftok.Load(base + ".json")
			require.NoError(t, err)
			var want struct {
				fixture
				DecodedSpecial []string    `json:"decoded_special"`
				PairMax        [][][]int64 `json:"pair_max"`
			}
			readJSON(t, file, &want)
			want.fixture.DecodedSpecial, want.fixture.PairMax = want.DecodedSpecial, want.PairMax
			run(t, tok, readTexts(t), want.fixture)
		})
	}
}

func TestGoldenFixturesEncodeToTheLibrarysIDs(t *testing.T) {
	t.Parallel()
	eachFixture(t, func(t *testing.T, tok *hftok.Tokenizer, texts fixtureTexts, want fixture) {
		t.Helper()
		for i, text := range texts.Texts {
			for special, ids := range map[bool][]int64{false: want.Plain[i], true: want.Special[i]} {
				for range 2 { // the second time from the cache
					got, err := tok.Encode(text, special)
					require.NoError(t, err)
					assert.Equal(t, ids, got, "text %d %q, special %v", i, text, special)
				}
			}
		}
	})
}

func TestGoldenFixturesJoinPairs(t *testing.T) {
	t.Parallel()
	eachFixture(t, func(t *testing.T, tok *hftok.Tokenizer, texts fixtureTexts, want fixture) {
		t.Helper()
		for i, pair := range texts.Pairs {
			for k, special := range []bool{false, true} {
				got, err := tok.EncodePair(pair[0], pair[1], special)
				require.NoError(t, err)
				assert.Equal(t, want.Pairs[2*i+k], encoding(got), "pair %d, special %v", i, special)
			}
		}
	})
}

func TestGoldenFixturesAreCutOnTheRight(t *testing.T) {
	t.Parallel()
	eachFixture(t, func(t *testing.T, tok *hftok.Tokenizer, texts fixtureTexts, want fixture) {
		t.Helper()
		for k, limit := range want.Limits {
			for i, pair := range texts.Pairs {
				got, err := tok.EncodeMax(pair[0], true, limit)
				require.NoError(t, err)
				assert.Equal(t, want.Max[k][i], got, "text %d cut to %d", i, limit)
				both, err := tok.EncodePairMax(pair[0], pair[1], true, limit)
				require.NoError(t, err)
				assert.Equal(t, want.PairMax[k][i], both.IDs, "pair %d cut to %d", i, limit)
			}
		}
	})
}

func TestGoldenFixturesDecodeToTheLibrarysTexts(t *testing.T) {
	t.Parallel()
	eachFixture(t, func(t *testing.T, tok *hftok.Tokenizer, texts fixtureTexts, want fixture) {
		t.Helper()
		for i := range texts.Texts {
			got, err := tok.Decode(want.Special[i], true)
			require.NoError(t, err)
			assert.Equal(t, want.Decoded[i], got, "text %d without special tokens", i)
			got, err = tok.Decode(want.Special[i], false)
			require.NoError(t, err)
			assert.Equal(t, want.DecodedSpecial[i], got, "text %d with special tokens", i)
		}
	})
}

func TestCLIPKeepsItsEndOfTextWhereAPromptIsCut(t *testing.T) {
	t.Parallel()
	tok, err := hftok.Load(filepath.Join("testdata", "clip.json"))
	require.NoError(t, err)
	end, ok := tok.ID("<|endoftext|>")
	require.True(t, ok)
	ids, err := tok.EncodeMax(strings.Repeat("a photo of a cat ", 100), true, 77)
	require.NoError(t, err)
	assert.Len(t, ids, 77)
	assert.Equal(t, end, ids[76])
	_, err = tok.EncodeMax("a", true, 1)
	require.ErrorIs(t, err, hftok.ErrText)
}

// assemble writes a tokenizer.json of the sections given.
func assemble(tb testing.TB, sections map[string]json.RawMessage) *hftok.Tokenizer {
	tb.Helper()
	data, err := json.Marshal(sections)
	require.NoError(tb, err)
	tok, err := hftok.Parse(data)
	require.NoError(tb, err)
	return tok
}

func TestGoldenComponentsCutAndNormaliseAsTheLibraryDoes(t *testing.T) {
	t.Parallel()
	checkComponents(t, "components.json", 100)
}

func TestGoldenAddedTokensAreFoundAsTheLibraryFindsThem(t *testing.T) {
	t.Parallel()
	checkComponents(t, "components_added.json", 20)
}

func checkComponents(t *testing.T, file string, least int) {
	t.Helper()
	var all struct {
		Chars    string
		Variants []map[string]json.RawMessage
	}
	readJSON(t, filepath.Join("testdata", file), &all)
	model := boundaryModel(t, all.Chars)
	texts := readTexts(t).Texts
	require.GreaterOrEqual(t, len(all.Variants), least)
	for _, v := range all.Variants {
		var name string
		var want string // three digits of a hash for each text
		require.NoError(t, json.Unmarshal(v["name"], &name))
		require.NoError(t, json.Unmarshal(v["ids"], &want))
		delete(v, "name")
		delete(v, "ids")
		v["model"] = model
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := assemble(t, v)
			for i, text := range texts {
				ids, err := tok.Encode(text, true)
				require.NoError(t, err)
				if hashOf(ids) != want[3*i:3*i+3] {
					var tokens []string
					for _, id := range ids {
						token, _ := tok.Token(id)
						tokens = append(tokens, token)
					}
					t.Errorf("text %d %q has other ids in the library; here %q", i, text, tokens)
				}
			}
		})
	}
}

// hashOf is how make_fixtures.py shortens a list of ids.
func hashOf(ids []int64) string {
	s := strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:3]
}

// boundaryModel is a BPE without merges whose ids tell every character and where pieces begin.
func boundaryModel(tb testing.TB, chars string) json.RawMessage {
	tb.Helper()
	vocab := map[string]int{"<unk>": 0}
	for _, r := range chars {
		for _, token := range []string{string(r), "##" + string(r)} {
			if _, known := vocab[token]; !known {
				vocab[token] = len(vocab)
			}
		}
	}
	data, err := json.Marshal(map[string]any{"type": "BPE", "unk_token": "<unk>", "continuing_subword_prefix": "##", "vocab": vocab, "merges": []string{}})
	require.NoError(tb, err)
	return data
}

func TestGoldenDecodersJoinTokensAsTheLibraryDoes(t *testing.T) {
	t.Parallel()
	var all struct {
		Vocab, Added json.RawMessage
		Lists        [][]int64
		Cases        []struct {
			Decoder json.RawMessage
			Texts   []string
		}
	}
	readJSON(t, filepath.Join("testdata", "decoding.json"), &all)
	for _, c := range all.Cases {
		t.Run(string(c.Decoder), func(t *testing.T) {
			t.Parallel()
			model := fmt.Sprintf(`{"type":"BPE","vocab":%s,"merges":[]}`, all.Vocab)
			tok := assemble(t, map[string]json.RawMessage{"model": json.RawMessage(model), "added_tokens": all.Added, "decoder": c.Decoder})
			for i, ids := range all.Lists {
				for k, skip := range []bool{false, true} {
					got, err := tok.Decode(ids, skip)
					require.NoError(t, err)
					assert.Equal(t, c.Texts[2*i+k], got, "ids %v, skip special %v", ids, skip)
				}
			}
		})
	}
}

func TestSectionsForPaddingAndTruncationChangeNothing(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "bert_cased.json"))
	require.NoError(t, err)
	var file map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &file))
	require.Contains(t, string(file["truncation"]), `"max_length":32`)
	long := strings.Repeat("a b ", 100)
	with, err := assemble(t, file).Encode(long, true)
	require.NoError(t, err)
	delete(file, "truncation")
	delete(file, "padding")
	without, err := assemble(t, file).Encode(long, true)
	require.NoError(t, err)
	assert.Equal(t, without, with)
	assert.Greater(t, len(with), 32)
}

func TestNoFixtureIsLargerThanSixtyKilobytes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	require.NoError(t, err)
	for _, f := range files {
		info, err := os.Stat(f)
		require.NoError(t, err)
		assert.LessOrEqual(t, info.Size(), int64(60<<10), f)
	}
}
