package architecture_test

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// retired are the words that stand nowhere any more, with those that took their place
// (docs/glossary.md).
var retired = map[string]string{
	"abroad":   "remote",
	"aim":      "assign",
	"bereave":  "reassign",
	"deaf":     "partitioned",
	"desk":     "scheduler",
	"fabric":   "queue",
	"hearsay":  "gossip",
	"seat":     "place",
	"stand-in": "imputed",
	"term":     "component",
}

// spoken are lines in which a retired word is somebody else's.
var spoken = []struct{ file, line string }{
	{"config/unbuilt.go", `"fabric":`},                   // an old key, answered with the new one
	{"config/unbuilt.go", `"loop.term_timeout":`},        // likewise
	{"config/agent_test.go", `has moved: write`},         // likewise
	{"docs/configuration.md", "| `fabric` |"},            // likewise
	{"docs/configuration.md", "| `loop.term_timeout` |"}, // likewise
	{"rewards/judge/unified.go", "in terms of content"},  // verl-omni's prompt
	{"queue/deliver.go", "m.Term()"},                     // JetStream's word for giving a message up
	{"", "golang.org/x/term"},                            // a package
	{"", "term."},                                        // its qualifier
	{"", "in terms of"},                                  // English
	{"docs/glossary.md", ""},                             // names them
	{"docs/results/", ""},                                // what was measured once
	{"docs/adr/", ""},                                    // a decision speaks the words of its time
	{"tools/architecture/words_test.go", ""},             // this list
	{"deploy/THIRD_PARTY.md", ""}, {"LICENSE", ""},       // texts of others
}

// renamed are names of one meaning of a word that keeps another one: in the folder, no identifier
// has the word in it. A folder may be a file.
var renamed = []struct{ dir, word, now string }{
	{"internal/outbound", "group", "upstream"},
	{"internal/service", "group", "upstream"},
	{"internal/subprocess/serve.go", "slot", "child"},
	{"loop", "engine", "queue"},
	{"loop", "gathered", "waits for its group"},
	{"loop", "parked", "waits for its group"},
	{"loop", "spare", "backup"},
	{"loop", "substitute", "fallback"},
	{"loop/dispatch", "bench", "workers' view"},
	{"loop/dispatch", "field", "pace table"},
	{"loop/dispatch", "lane", "step queue"},
	{"loop/dispatch", "rest", "outage, backing off"},
	{"loop/dispatch", "resting", "backing off"},
	{"loop/step", "slot", "place"},
	{"loop/stream", "got", "confirm"},
	{"loop/stream", "parked", "waits for its group"},
	{"pool", "lane", "batch queue"},
	{"queue", "engine", "queue"},
	{"queue", "slot", "place"},
	{"queue/payload", "lane", "claim connection"},
	{"rewards/ocr", "engine", "reader"},
	{"rewards/python", "host", "Python process"},
	{"server", "door", "ingress"},
	{"server", "edge", "route"},
	{"server", "way", "route"},
	{"server/compat", "edge", "route"},
	{"testkit/memqueue", "engine", "queue"},
	{"testkit/queuetest", "engine", "queue"},
	{"wire", "substitute", "fallback"},
	{"wire/rewards.go", "take", "fetch"},
	{"workers", "slot", "place"},
}

// foreign are identifiers of other packages, and plain English, that renamed does not mean.
var foreign = []string{"WaitGroup", "Group", "errgroup", "got", "gotten", "ErrHost"}

var (
	wordOf  = regexp.MustCompile(`[A-Za-z][A-Za-z0-9]*`)
	humpOf  = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+|[0-9]+`)
	standIn = regexp.MustCompile(`(?i)\bstand-ins?\b|[sS]tandIn\b`)
)

// humps are the words of an identifier in lower case, without a plural's s: partitionedPeers is
// partitioned and peer.
func humps(name string) []string {
	var out []string
	for _, w := range humpOf.FindAllString(name, -1) {
		w = strings.ToLower(w)
		if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
			w = w[:len(w)-1]
		}
		out = append(out, w)
	}
	return out
}

// retiredIn returns the retired word of a line; "": it has none.
func retiredIn(line string) string {
	for _, name := range wordOf.FindAllString(line, -1) {
		for _, h := range humps(name) {
			if _, ok := retired[h]; ok {
				return h
			}
		}
	}
	if standIn.MatchString(line) {
		return "stand-in"
	}
	return ""
}

func TestRetiredWordsStandNowhere(t *testing.T) {
	t.Parallel()
	kinds := []string{".go", ".md", ".py", ".html", ".yml", ".yaml", ".json", ".sh", ".conf", ".service", ".sbatch"}
	files := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		path = filepath.ToSlash(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "out", "bin", "gpu-results"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(kinds, filepath.Ext(path)):
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		for n, line := range strings.Split(string(text), "\n") {
			word := retiredIn(line)
			if word == "" || slices.ContainsFunc(spoken, func(s struct{ file, line string }) bool {
				return strings.HasPrefix(path, s.file) && strings.Contains(line, s.line)
			}) || word == "term" && strings.Contains(line, "TERM") && retiredIn(strings.ReplaceAll(line, "TERM", "")) == "" {
				continue
			}
			t.Errorf("%s:%d: %q is retired: say %q\n\t%.150s", path, n+1, word, retired[word], strings.TrimSpace(line))
		}
		return err
	}))
	require.Greater(t, files, 700, "where is the code?")
}

// named are the identifiers of a Go file, with their lines.
func named(t *testing.T, path string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var s scanner.Scanner
	set := token.NewFileSet()
	file := set.AddFile(path, -1, len(text))
	s.Init(file, text, nil, 0)
	out := map[string]int{}
	for {
		pos, kind, name := s.Scan()
		switch kind {
		case token.EOF:
			return out
		case token.IDENT:
			out[name] = file.Line(pos)
		}
	}
}

func TestWordsOfSeveralMeaningsKeepOne(t *testing.T) {
	t.Parallel()
	for _, r := range renamed {
		pattern := r.dir
		if filepath.Ext(pattern) == "" {
			pattern += "/*.go"
		}
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, paths, "%s: which folder has its code now?", r.dir)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for name, line := range named(t, path) {
				if !slices.Contains(foreign, name) && slices.Contains(humps(name), r.word) {
					t.Errorf("%s:%d: %s: here a %s is called %s", path, line, name, r.word, r.now)
				}
			}
		}
	}
}

func TestTheGlossaryHasEveryRetiredWord(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/glossary.md")
	require.NoError(t, err)
	for word, now := range retired {
		assert.Contains(t, string(text), now, "the word that took the place of %s", word)
	}
}

func TestTheRulesOfWordsCatchAFault(t *testing.T) {
	t.Parallel()
	for line, word := range map[string]string{
		"func termOf() {}": "term", "TermError": "term", "// the terms of a reward": "term", `"on_fabric": 1`: "fabric",
		"var seats []int": "seat", "a stand-in": "stand-in", "termination determines the terminal": "", "claims": "",
	} {
		assert.Equal(t, word, retiredIn(line), fmt.Sprintf("%q", line))
	}
}
