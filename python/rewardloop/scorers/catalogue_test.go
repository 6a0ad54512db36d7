package scorers_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/python/rewardloop/scorers"
)

var update = flag.Bool("update", false, "write the table of docs/scorers.md")

// words are what inputs may be, as package rewards/python has them.
func words() []string {
	return []string{scorers.Image, scorers.Source, scorers.Video, scorers.Audio, scorers.Prompt}
}

func TestEveryFolderIsAnEntryThatSaysAll(t *testing.T) {
	t.Parallel()
	folders, err := os.ReadDir(".")
	require.NoError(t, err)
	var names []string
	for _, f := range folders {
		if f.IsDir() && f.Name() != "__pycache__" {
			names = append(names, f.Name())
		}
	}
	require.Equal(t, names, scorers.Names(), "a folder without its three files")
	for _, wanted := range []string{
		"hpsv2", "hpsv3", "imagereward", "pickscore", "videopickscore", "videoalign", "editreward", "editscore",
		"clap", "imagebind", "aesthetic_v2_5", "pyiqa",
	} {
		assert.NotNil(t, scorers.Find(wanted), wanted)
	}
	for _, e := range scorers.All() {
		for what, text := range map[string]string{
			"summary": e.Summary, "range": e.Range, "source": e.Source, "code licence": e.Code.Name, "code url": e.Code.URL,
			"python": e.Python, "tested": e.Tested, "pixels": e.Pixels,
		} {
			assert.NotEmpty(t, text, "%s: %s", e.Name, what)
		}
		assert.NotEmpty(t, e.Inputs, e.Name)
		for _, input := range e.Inputs {
			assert.Contains(t, words(), input, e.Name)
		}
		assert.NotEmpty(t, e.Notes, "%s: what bites", e.Name)
		assert.NotEmpty(t, e.Weights, e.Name)
		for _, w := range e.Weights {
			assert.Positive(t, w.Bytes, "%s: %s", e.Name, w.Name)
			assert.NotEmpty(t, w.Licence.Name, "%s: %s", e.Name, w.Name)
			assert.Contains(t, w.URL, "https://", "%s: %s", e.Name, w.Name)
		}
		free := regexp.MustCompile(`^(MIT|Apache-2\.0|BSD-3-Clause|CC0-1\.0)$`)
		for _, licence := range append([]scorers.Weight{{Licence: e.Code}}, e.Weights...) {
			if !free.MatchString(licence.Licence.Name) {
				assert.Equal(t, licence.Licence.Name, e.Accept, "%s: a licence that has to be agreed to", e.Name)
			}
		}
	}
}

func TestEveryRequirementIsPinned(t *testing.T) {
	t.Parallel()
	pin := regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*==[0-9][0-9a-z.]*$`)
	for _, e := range scorers.All() {
		last := ""
		for line := range strings.Lines(e.Requirements) {
			line = strings.TrimSpace(line)
			require.Regexp(t, pin, line, e.Name)
			assert.True(t, strings.HasPrefix(line, "matplotlib") || last == "" || line != last, "%s: %s twice", e.Name, line)
			last = line
		}
		assert.Contains(t, e.Requirements, "torch==", e.Name)
	}
}

func TestAnAdapterIsShortAndTakesTheOptionsThatAreSaid(t *testing.T) {
	t.Parallel()
	constructor := regexp.MustCompile(`(?s)def __init__\(\s*self,\s*device,?(.*?)\):\n`)
	parameter := regexp.MustCompile(`(?m)(\w+)(=)?[^,()]*(?:\([^)]*\))?,?`)
	for _, e := range scorers.All() {
		assert.LessOrEqual(t, strings.Count(e.Adapter, "\n"), 80, e.Name)
		assert.Contains(t, e.Adapter, "class "+scorers.Class+":", e.Name)
		assert.Contains(t, e.Adapter, "def compute_scores(self, samples):", e.Name)
		if e.Name != "editscore" { // whose package samples text
			assert.Contains(t, e.Adapter, "inference_mode()", "%s keeps gradients", e.Name)
		}
		found := constructor.FindStringSubmatch(e.Adapter)
		require.NotNil(t, found, e.Name)
		var takes, says []string
		for _, p := range parameter.FindAllStringSubmatch(found[1], -1) {
			takes = append(takes, fmt.Sprintf("%s %v", p[1], p[2] == ""))
		}
		for _, o := range e.Options {
			says = append(says, fmt.Sprintf("%s %v", o.Name, o.Default == "required"))
			assert.NotEmpty(t, o.Doc, "%s: %s", e.Name, o.Name)
		}
		assert.ElementsMatch(t, takes, says, "%s: its options and whether each is required", e.Name)
		for _, w := range e.Weights {
			if w.Option != "" {
				assert.Contains(t, strings.Join(says, " "), w.Option+" ", "%s: %s", e.Name, w.Name)
			}
		}
	}
}

// The table of the document is the catalogue's.
func TestTheDocumentHasTheCatalogue(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- the catalogue -->\n", "<!-- end of the catalogue -->\n"
	path := filepath.Join("..", "..", "..", "docs", "scorers.md")
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	want := before + begin + table() + end + after
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(page), "run go test ./python/rewardloop/scorers -run Document -update")
}

func table() string {
	var b strings.Builder
	b.WriteString("| `path` | scores | inputs | range | code | weights, about | environment | tested |\n|---|---|---|---|---|---|---|---|\n")
	for _, e := range scorers.All() {
		var weights []string
		for _, w := range e.Weights {
			weights = append(weights, fmt.Sprintf("[%s](%s), %s, %s", w.Name, w.URL, size(w.Bytes), w.Licence.Name))
		}
		accept := ""
		if e.Accept != "" {
			accept = "; **`accept_license: " + e.Accept + "`**"
		}
		made := "`env make" + e.Flags() + "`"
		if len(e.ByHand) > 0 {
			made = "by hand: `rewardloop scorers " + e.Path() + "` has the commands"
		}
		fmt.Fprintf(&b, "| `%s` | [%s](%s) | %s | %s | [%s](%s)%s | %s | %s; Python %s | %s |\n", e.Path(), e.Summary, e.Source, strings.Join(e.Inputs, ", "),
			e.Range, e.Code.Name, e.Code.URL, accept, strings.Join(weights, "<br>"), made, e.Python, e.Tested)
	}
	return b.String()
}

func size(n int64) string {
	if n >= 1e9 {
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%d MB", (n+5e5)/1e6)
}
