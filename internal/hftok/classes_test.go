package hftok

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

// readClasses reads what make_fixtures.py found out about every code point.
func readClasses(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "classes.json"))
	require.NoError(t, err)
	var all map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &all))
	return all
}

// eachRune calls f for every code point but 0 and the surrogates.
func eachRune(f func(r rune)) {
	for r := rune(1); r <= unicode.MaxRune; r++ {
		if r < 0xD800 || r > 0xDFFF {
			f(r)
		}
	}
}

func TestGoldenClassesOfEveryCodePoint(t *testing.T) {
	t.Parallel()
	all := readClasses(t)
	bert := bertNormalizer{clean: true}
	for name, holds := range map[string]func(rune) bool{
		"letter":      func(r rune) bool { return slowClass(r) == letter },
		"number":      func(r rune) bool { return slowClass(r) == number },
		"space":       unicode.IsSpace,
		"numeric":     isNumeric,
		"punctuation": isPunctuation,
		"word":        isWord,
		"mark":        isNonSpacing,
		"combining":   isCombining,
		"other":       bert.drops,
		"extend":      extends,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want, got []rune
			require.NoError(t, json.Unmarshal(all[name], &want))
			eachRune(func(r rune) {
				switch {
				case !holds(r):
				case len(got) > 0 && got[len(got)-1] == r-1:
					got[len(got)-1] = r
				default:
					got = append(got, r, r)
				}
			})
			assert.Equal(t, want, got)
		})
	}
}

func TestGoldenNormalFormsOfEveryCodePoint(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	all := readClasses(t)
	for name, n := range map[string]normalizer{
		"lower": plain(lower), "nfc": form{norm.NFC}, "nfd": form{norm.NFD}, "nfkc": form{norm.NFKC}, "nfkd": form{norm.NFKD},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want string
			require.NoError(t, json.Unmarshal(all[name+"_sha256"], &want))
			h := sha256.New()
			eachRune(func(r rune) {
				if 0x33480 <= r && r < 0xE0000 || r >= 0xE0200 {
					return // nothing there has a normal form
				}
				c := string(r)
				out, _, err := n.normalize("a" + c + "\u0334e\u0301" + c + "\u0327" + c)
				if err != nil {
					t.Error(err)
				}
				h.Write([]byte(out + "\n"))
			})
			assert.Equal(t, want, hex.EncodeToString(h.Sum(nil)))
		})
	}
}
