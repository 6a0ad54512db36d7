package architecture_test

import (
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
// has the word in it. A folder may be a file, and has its Go or its Python.
var renamed = []struct{ dir, word, now string }{
	{"client", "engine", "queue"},
	{"client", "got", "confirm"},
	{"config", "lane", "batch queue, step queue"},
	{"internal/outbound", "group", "upstream"},
	{"internal/outbound", "slot", "under way"},
	{"internal/service", "group", "upstream"},
	{"internal/sim", "lane", "step queue"},
	{"internal/sim", "slot", "place"},
	{"internal/subprocess/serve.go", "slot", "child"},
	{"loop", "bench", "workers' view"},
	{"loop", "engine", "queue"},
	{"loop", "gathered", "waits for its group"},
	{"loop", "got", "confirm"},
	{"loop", "parked", "waits for its group"},
	{"loop", "slot", "place"},
	{"loop", "spare", "backup"},
	{"loop", "substitute", "fallback"},
	{"loop/dispatch", "bench", "workers' view"},
	{"loop/dispatch", "field", "pace table"},
	{"loop/dispatch", "lane", "step queue"},
	{"loop/dispatch", "rest", "outage, backing off"},
	{"loop/dispatch", "resting", "backing off"},
	{"loop/dispatch", "slot", "place"},
	{"loop/step", "got", "confirm"},
	{"loop/step", "slot", "place"},
	{"loop/step", "take", "fetch"},
	{"loop/steps.go", "take", "fetch"},
	{"loop/stream", "got", "confirm"},
	{"loop/stream", "parked", "waits for its group"},
	{"loop/stream/serve.go", "take", "fetch"},
	{"loop/trace", "lane", "step queue"},
	{"loop/trace", "slot", "place"},
	{"node", "edge", "server, route"},
	{"node", "lane", "batch queue, claim connection"},
	{"node/engines.go", "group", "upstream"},
	{"pool", "lane", "batch queue"},
	{"python/rewardloop", "engine", "core"},
	{"python/rewardloop", "got", "confirm"},
	{"python/rewardloop/steps.py", "take", "fetch"},
	{"python/rewardloop/fetches.py", "take", "fetch"},
	{"python/rewardloop/messages.py", "take", "fetch"},
	{"queue", "engine", "queue"},
	{"queue", "lane", "claim connection"},
	{"queue", "slot", "place"},
	{"queue/payload", "lane", "claim connection"},
	{"queue/payload", "slot", "place"},
	{"rewards", "substitute", "fallback"},
	{"rewards/ocr", "engine", "reader"},
	{"rewards/ocr/ppocr", "engine", "reader"},
	{"rewards/ocr/tesseract", "engine", "reader"},
	{"rewards/python", "host", "Python process"},
	{"rewards/remote", "slot", "running"},
	{"rewards/verify", "slot", "running"},
	{"server", "door", "ingress"},
	{"server", "edge", "route"},
	{"server", "lane", "claim connection"},
	{"server", "substitute", "fallback"},
	{"server", "way", "route"},
	{"server/compat", "edge", "route"},
	{"server/compat", "way", "route"},
	{"server/steps.go", "take", "fetch"},
	{"testkit/fleet", "engine", "queue"},
	{"testkit/fleet", "slot", "place"},
	{"testkit/memqueue", "engine", "queue"},
	{"testkit/queuetest", "engine", "queue"},
	{"testkit/rig", "engine", "queue"},
	{"testkit/rig", "slot", "place"},
	{"tools/bench/node.go", "slot", "place"},
	{"wire", "engine", "queue"},
	{"wire", "got", "confirm"},
	{"wire", "slot", "place"},
	{"wire", "substitute", "fallback"},
	{"wire/rewards.go", "take", "fetch"},
	{"workers", "lane", "claim connection"},
	{"workers", "slot", "place"},
}

// gone are keys, messages, metrics and phrases that users read, in whichever file of the
// repository that is not of its time: the pattern, and what it is called now.
var gone = []struct {
	word    string // is in what the pattern matches, in lower case: looked for first, because it is fast
	pattern *regexp.Regexp
	now     string
}{
	{"slot", regexp.MustCompile(`\bworkers\.slots\b`), "reward.concurrency"},
	{"internal/", regexp.MustCompile(`\binternal/(slot|obs)\b`), "internal/subprocess, internal/timing"},
	{"rewardloop_", regexp.MustCompile(`\brewardloop_\w*(fabric|engine|lane|parked|spare|substitute|slot_|seat|door|edge)`), "queue, batch queue, upstream, backup, fallback, child, place, route"},
	{`"type"`, regexp.MustCompile(`"type":\s*"(take|got|ticket_take)"`), "fetch, confirm"},
	{"`", regexp.MustCompile("`(take|got)`"), "`fetch`, `confirm`"},
	{"edge", regexp.MustCompile(`(?i)\bHTTP edges?\b|\bthe edges? (of the|that) (server|gateway|listens)`), "server, route"},
	{"ticket", regexp.MustCompile(`(?i)\b(engine|carrier) of tickets\b|\btickets? (engine|carrier)\b`), "queue"},
	{"slot", regexp.MustCompile(`(?i)\b(python|worker) slots?\b|\bslots? of (a|the) workers?\b|\bworkers × slots\b|\bslot process(es)?\b`), "place, child process"},
	{"host", regexp.MustCompile(`(?i)\bpython hosts?\b|\bhost process(es)?\b`), "Python process"},
	{"spare", regexp.MustCompile(`(?i)\bspare (request|ticket|attempt)s?\b`), "backup request"},
	{"substitute", regexp.MustCompile(`(?i)\bsubstitute (value|reward|score)s?\b`), "fallback, imputed"},
	{"ed", regexp.MustCompile(`(?i)\b(samples?|members?) (is|are|was|were) (parked|gathered)\b`), "waits for its group"},
	{"lane", regexp.MustCompile(`(?i)\b(step|claim|batch) lanes?\b`), "step queue, claim connection, batch queue"},
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

// eachText calls f with each file of the repository that has names or prose of ours.
func eachText(t *testing.T, f func(path, text string)) {
	t.Helper()
	kinds := []string{".go", ".md", ".py", ".html", ".yml", ".yaml", ".json", ".sh", ".conf", ".service", ".sbatch", ".patch", ".toml"}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		path = filepath.ToSlash(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "out", "bin", "gpu-results"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(kinds, filepath.Ext(path)) && path != "Makefile" && path != "Dockerfile":
			return nil
		}
		text, err := os.ReadFile(path)
		f(path, string(text))
		return err
	}))
}

func TestRetiredWordsStandNowhere(t *testing.T) {
	t.Parallel()
	files := 0
	eachText(t, func(path, text string) {
		files++
		if word := retiredIn(path); word != "" && !inHistory(path) {
			t.Errorf("%s: %q is retired: say %q", path, word, retired[word])
		}
		for n, line := range strings.Split(text, "\n") {
			word := retiredIn(line)
			if word == "" || slices.ContainsFunc(spoken, func(s struct{ file, line string }) bool {
				return strings.HasPrefix(path, s.file) && strings.Contains(line, s.line)
			}) || word == "term" && strings.Contains(line, "TERM") && retiredIn(strings.ReplaceAll(line, "TERM", "")) == "" {
				continue
			}
			t.Errorf("%s:%d: %q is retired: say %q\n\t%.150s", path, n+1, word, retired[word], strings.TrimSpace(line))
		}
	})
	require.Greater(t, files, 700, "where is the code?")
}

// inHistory reports whether a file is of its time: it may have the words of it.
func inHistory(path string) bool {
	return strings.HasPrefix(path, "docs/adr/") || strings.HasPrefix(path, "docs/results/") || path == "docs/glossary.md" ||
		path == "CHANGELOG.md" || path == "tools/architecture/words_test.go"
}

// pythonName finds what Python code gives a name: a function, a class, an attribute, a variable
// or a parameter.
var pythonName = regexp.MustCompile(`(?m)(?:\bdef |\bclass |\bself\.|^\s*|[(,] ?)([A-Za-z_]\w*)(?:\(| ?[:=]|\b$)`)

// named are the identifiers of a Go file, or the names that a Python file gives, with their lines.
func named(path string, text []byte) map[string]int {
	if strings.HasSuffix(path, ".py") {
		out := map[string]int{}
		for n, line := range strings.Split(string(text), "\n") {
			for _, m := range pythonName.FindAllStringSubmatch(line, -1) {
				out[m[1]] = n + 1
			}
		}
		return out
	}
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

// oldName is an identifier of a file that has a word in the meaning that it lost; "": there is none.
func oldName(path, word string, text []byte) (name string, line int) {
	for name, line := range named(path, text) {
		if !slices.Contains(foreign, name) && slices.Contains(humps(name), word) {
			return name, line
		}
	}
	return "", 0
}

func TestWordsOfSeveralMeaningsKeepOne(t *testing.T) {
	t.Parallel()
	for _, r := range renamed {
		paths := []string{r.dir}
		if filepath.Ext(r.dir) == "" {
			for _, kind := range []string{"/*.go", "/*.py"} {
				found, err := filepath.Glob(r.dir + kind)
				require.NoError(t, err)
				paths = append(paths, found...)
			}
			paths = paths[1:]
		}
		require.NotEmpty(t, paths, "%s: which folder has its code now?", r.dir)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") && (r.word == "engine" || r.word == "take") {
				continue // tests have engines of models, and take samples
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			if name, line := oldName(path, r.word, text); name != "" {
				t.Errorf("%s:%d: %s: here a %s is called %s", path, line, name, r.word, r.now)
			}
		}
	}
}

// wasSaid returns what the words of a line are called now that users read in it; "": they are
// those of the glossary.
func wasSaid(line string) string {
	lower := strings.ToLower(line)
	for _, g := range gone {
		if strings.Contains(lower, g.word) && g.pattern.MatchString(line) {
			return g.now
		}
	}
	return ""
}

func TestKeysMetricsMessagesAndPhrasesOfOldAreGone(t *testing.T) {
	t.Parallel()
	files := 0
	eachText(t, func(path, text string) {
		if inHistory(path) || strings.HasPrefix(path, "config/unbuilt") || strings.HasPrefix(path, "config/concurrency_test") {
			return // old keys are answered there
		}
		files++
		for n, line := range strings.Split(text, "\n") {
			if now := wasSaid(line); now != "" {
				t.Errorf("%s:%d: say %s\n\t%.150s", path, n+1, now, strings.TrimSpace(line))
			}
		}
	})
	require.Greater(t, files, 700, "where is the code?")
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
		assert.Equal(t, word, retiredIn(line), "%q", line)
	}
	for path, word := range map[string]string{"internal/outbound/hearsay_test.go": "hearsay", "rewards/determined.go": ""} {
		assert.Equal(t, word, retiredIn(path), path)
	}
	for line, now := range map[string]string{
		`{"type": "take", "req": 1}`: "fetch, confirm", "| `got` | `n` |": "`fetch`, `confirm`", "rewardloop_loop_parked": "queue, batch queue, upstream, backup, fallback, child, place, route",
		"// The HTTP edge meets": "server, route", "a Python host": "Python process", "pool.onnx.slots": "", "rewardloop_pool_slots": "", "it takes a step": "", "an edge of the picture": "",
	} {
		assert.Equal(t, now, wasSaid(line), line)
	}
	for text, want := range map[string][]string{
		"package pool\n\ntype laneKey struct{}": {"x.go", "lane", "laneKey"}, "package pool\n\nvar x = \"lane\" // lane": {"x.go", "lane", ""},
		"class EngineLink:\n    pass": {"x.py", "engine", "EngineLink"}, "self.engine = Core()": {"x.py", "engine", "engine"}, "    # the engine": {"x.py", "engine", ""},
	} {
		name, _ := oldName(want[0], want[1], []byte(text))
		assert.Equal(t, want[2], name, text)
	}
}
