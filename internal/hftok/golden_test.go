package hftok_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/hftok"
	"github.com/rewardloop/rewardloop/testkit/race"
)

// tokenizerFolders are the folders of real tokenizers: the one beside the repository and the one that
// REWARDLOOP_TOKENIZERS names. Such a folder has strings.json, a list of texts, and for each
// <name>.json a file <name>.ids.json with the ids of each text [without, with] special tokens.
func tokenizerFolders(tb testing.TB) []string {
	tb.Helper()
	candidates := []string{filepath.Join("..", "..", "..", "shared", "data", "tokenizers")}
	if dir := os.Getenv("REWARDLOOP_TOKENIZERS"); dir != "" {
		require.DirExists(tb, dir, "REWARDLOOP_TOKENIZERS")
		candidates = append(candidates, dir)
	}
	var folders []string
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "strings.json")); err == nil {
			folders = append(folders, dir)
		}
	}
	if len(folders) == 0 {
		tb.Skipf("no real tokenizers in %v; REWARDLOOP_TOKENIZERS may name a folder of them", candidates)
	}
	return folders
}

func readJSON(tb testing.TB, path string, v any) {
	tb.Helper()
	data, err := os.ReadFile(path)
	require.NoError(tb, err)
	require.NoError(tb, json.Unmarshal(data, v), path)
}

type idsOfText = [2][]int64 // without and with special tokens

func TestGoldenIDsOfRealTokenizers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for _, dir := range tokenizerFolders(t) {
		files, err := filepath.Glob(filepath.Join(dir, "*.ids.json"))
		require.NoError(t, err)
		require.NotEmpty(t, files, "%s has no *.ids.json", dir)
		texts := goldenTexts(t, dir)
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".ids.json")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tok, err := hftok.Load(filepath.Join(dir, name+".json"))
				require.NoError(t, err)
				var want []idsOfText
				readJSON(t, file, &want)
				require.Len(t, texts, len(want))
				wrong, tried, step := 0, 0, 1
				if race.Enabled { // ten times dearer; make test tries all of them without it
					step = 16
				}
				for i := 0; i < len(texts); i += step {
					text := texts[i]
					tried += 2
					for k, special := range []bool{false, true} {
						got, err := tok.Encode(text, special)
						require.NoError(t, err, "text %d %q", i, text)
						if !assert.ObjectsAreEqual(want[i][k], got) {
							if wrong++; wrong <= 5 {
								t.Errorf("text %d %q, special %v:\nwant %v\ngot  %v", i, text, special, want[i][k], got)
							}
						}
					}
				}
				t.Logf("%d of %d encodings equal", tried-wrong, tried)
			})
		}
	}
}

// goldenTexts returns the texts that the ids of a folder belong to. Where there are more ids than
// strings.json has texts, the texts are the ones that GPT-2's ids decode to, whose byte-level tokens
// lose nothing.
func goldenTexts(t *testing.T, dir string) []string {
	t.Helper()
	var texts []string
	readJSON(t, filepath.Join(dir, "strings.json"), &texts)
	if _, err := os.Stat(filepath.Join(dir, "gpt2.ids.json")); err != nil {
		return texts
	}
	var ids []idsOfText
	readJSON(t, filepath.Join(dir, "gpt2.ids.json"), &ids)
	if len(texts) == len(ids) {
		return texts
	}
	tok, err := hftok.Load(filepath.Join(dir, "gpt2.json"))
	require.NoError(t, err, "strings.json has %d texts and there are ids of %d", len(texts), len(ids))
	texts = texts[:0]
	for _, pair := range ids {
		text, err := tok.Decode(pair[0], false)
		require.NoError(t, err)
		texts = append(texts, text)
	}
	return texts
}
