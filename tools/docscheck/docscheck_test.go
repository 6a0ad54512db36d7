package main

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/executable"
)

// stub answers as the binary does, for a tree of its own.
const stub = `#!/usr/bin/env bash
case "$*" in
--help) printf 'Usage\n\n  serve     run\n  models    bring\n  config    check\n  scorers   list\n' ;;
"serve --help") printf 'Flags:\n  -c, --config file   x\n      --listen address   x\n' ;;
"scorers --json") printf '{"scorers": [{"name": "ocr"}]}' ;;
"models list --json") printf '{"models": [{"name": "tiny-1b"}]}' ;;
*--help) printf 'Flags:\n  -c, --config file   x\n      --json   x\n' ;;
"config check"*)
	faults=
	case "$*" in *"loop.slots=null"*) echo 'rewardloop config check: override "++loop.slots=null": loop.slots: no such key'; faults=1 ;; esac
	case "$*" in *"loop.slots=2"*) echo 'rewardloop config check: override "loop.slots=2": loop.slots: no such key'; faults=1 ;; esac
	if [ -e cfg.yaml ]; then
		n=$(grep -n weigth cfg.yaml | cut -d: -f1)
		[ -z "$n" ] || faults=$(echo "rewardloop config check: cfg.yaml:$n:5: unknown field weigth" >&2; echo 1)
		! grep -q mine.py cfg.yaml || [ -e mine.py ] || faults=$(echo "rewardloop config check: cfg.yaml:3:5: there is no file $PWD/mine.py; a relative path starts here" >&2; echo 1)
	fi
	[ -z "$faults" ] || exit 2 ;;
esac
`

// repository makes one of these files, beside some that every test has.
func repository(t *testing.T, files map[string]string) (root, bin string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts git")
	}
	root = t.TempDir()
	all := map[string]string{
		"Makefile":              "build: ## it\n\tgo build\n",
		"loop/loop_test.go":     "package loop\n\nfunc TestItHolds(t *testing.T) {}\n",
		"docs/metrics.md":       "`rewardloop_live_places`\n",
		"scripts/run.sh":        "echo \"$REWARDLOOP_MODELS\" --hard\n",
		"examples/e/main.go":    "package main\n\nimport \"flag\"\n\nvar n = flag.Int(\"rounds\", 1, \"\")\n",
		"examples/e/train.py":   "parser.add_argument(\"--steps\")\n",
		"docs/other.md":         "# Other\n\n## What it is, `and` more\n\n## What it is, and more\n",
		"python/rewardloop.py":  "def draining(): ...\n",
		"deploy/cfg.yaml":       "reward: {}\n",
		".gitignore":            "bin\n",
		"docs/other_picture.md": "x\n",
	}
	maps.Copy(all, files)
	for name, text := range all {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "init", "-q").CombinedOutput()
	require.NoError(t, err, "%s", out)
	bin = filepath.Join(t.TempDir(), "rewardloop")
	executable.Write(t, bin, stub)
	return root, bin
}

// check runs all checks on a page and returns what was printed.
func check(t *testing.T, page string) (code int, said string) {
	t.Helper()
	root, bin := repository(t, map[string]string{"docs/page.md": page})
	var out strings.Builder
	code, err := run(t.Context(), []string{"-root", root, "-bin", bin}, &out)
	require.NoError(t, err)
	return code, out.String()
}

const fenced = "```"

func TestAPageThatSpeaksOfWhatIsThereIsLeftAlone(t *testing.T) {
	t.Parallel()
	code, said := check(t, `# Page

See [other](other.md#what-it-is-and-more-1), ![a picture](other_picture.md), [here](#page), <https://example.com/a_b>,
the [spec](https://example.com/x(1)) and https://example.org.

`+"`docs/other.md`, `examples/{e,e}/main.go`, `examples/<name>/train.py`, `TestItHolds`, `TestIt…`, `make build`, `loop.lease`, `rewardloop_live_places`"+`
`+"`rewardloop serve --listen x`, `--steps 3`, `--hard`, `builtin://ocr`, `REWARDLOOP_MODELS`, `bin/rewardloop`, `loop.draining`, `not a/path`"+`

`+fenced+`sh
export REWARDLOOP_MODELS=$PWD/x   # it's a comment
cat > cfg.yaml <<'EOF'
reward:
  reward_functions: {a: {path: mine.py}}
EOF
rewardloop serve -c cfg.yaml \
    loop.lease=2s | head -n 1 && make build
(cd examples/e && python train.py --steps=3 > "$(mkdir -p out; echo out/log)" 2>&1 &)
go run ./examples/e --rounds 3
rewardloop models pull tiny-1b
`+fenced+`

`+fenced+`json
{"a": 1}
{"b": [2]}
`+fenced+`

`+fenced+`python
async for x in y:
    await z
`+fenced+`

`+fenced+`go
x := 1
`+fenced+`

`+fenced+`yaml
    answer: {path: mine.py}
`+fenced+`

`+fenced+`hydra
+reward.a.b=c
`+fenced+`

`+fenced+`text
$ anything
`+fenced+`
`)
	assert.Zero(t, code, said)
	assert.Contains(t, said, "7 blocks", said)
}

// Each fault is found, on its line, and with what to do.
func TestEachFaultIsFoundOnItsLine(t *testing.T) {
	t.Parallel()
	block := func(language, text string) string {
		return "x\n\n" + fenced + language + "\n" + text + "\n" + fenced + "\n"
	}
	for name, tt := range map[string]struct{ page, says string }{
		"a file that is gone":      {"[x](gone.md)", `docs/page.md:1: the link "gone.md" leads to docs/gone.md`},
		"a heading that is gone":   {"\n[x](other.md#gone)", "docs/page.md:2: docs/other.md has no heading #gone"},
		"a picture that is gone":   {"![x](gone.png)", "leads to docs/gone.png"},
		"an absolute path":         {"[x](/etc/passwd)", "begins at the machine's root"},
		"no target":                {"[x]()", "leads nowhere"},
		"a reference":              {"[x]: gone.md", "leads to docs/gone.md"},
		"an image's tag":           {`<img src="gone.png">`, "leads to docs/gone.png"},
		"http":                     {"see http://example.com/x.", `"http://example.com/x" is not https`},
		"no host":                  {"<https:///x>", "names no host"},
		"a host without a dot":     {"[x](https://gateway/x)", "host without a dot"},
		"a path":                   {"`docs/gone.md`", "there is no docs/gone.md"},
		"a pattern":                {"`examples/*/gone.go`", "there is no examples/*/gone.go"},
		"a test":                   {"`TestItBreaks`", "there is no test TestItBreaks"},
		"a test's pattern":         {"`TestIts…`", "there is no test TestIts…"},
		"a target":                 {"`make gone`", `make has no target "gone"`},
		"a flag":                   {"`rewardloop serve --gone`", "rewardloop serve has no flag --gone"},
		"a flag alone":             {"`--gone`", "nothing here has a flag --gone"},
		"a command":                {"`rewardloop gone`", `rewardloop has no command "gone"`},
		"a reward":                 {"`builtin://gone`", `no reward is called "gone"`},
		"a variable":               {"`REWARDLOOP_GONE`", "nothing reads the variable REWARDLOOP_GONE"},
		"a metric":                 {"`rewardloop_gone_slots`", "no metric is called rewardloop_gone_slots"},
		"a key":                    {"`loop.slots`", "the configuration has no key loop.slots"},
		"no language":              {block("", "x"), "docs/page.md:3: this block says \"\" for its language"},
		"no end":                   {"\n" + fenced + "sh\necho", "docs/page.md:2: the block that begins here has no end"},
		"shell":                    {block("sh", "echo ("), "docs/page.md:4: bash cannot read this block"},
		"json":                     {block("json", "{\n\"a\": 1,}"), "docs/page.md:5: this is not JSON"},
		"go":                       {block("go", "x = = 1"), "docs/page.md:4: this is no Go"},
		"python":                   {block("python", "x = 1\nx = = 1"), "docs/page.md:5: Python cannot read this block"},
		"yaml":                     {block("yaml", "a: [1"), "docs/page.md:4: this is not YAML"},
		"a configuration":          {block("yaml", "reward:\n  weigth: 1"), "docs/page.md:5: rewardloop config check: unknown field weigth"},
		"a part of one":            {block("yaml", "component:\n  path: x\n  weigth: 1"), "docs/page.md:6: rewardloop config check: unknown field weigth"},
		"an override of a trainer": {block("hydra", "reward a"), "is not an override"},
		"an override":              {block("sh", "x\nrewardloop serve -c cfg.yaml loop.slots=2"), "docs/page.md:5: rewardloop config check: override \"loop.slots=2\""},
		"an unknown command":       {block("sh", "ls\nfrobnicate --now"), `docs/page.md:5: this project does not know the command "frobnicate"`},
		"a flag in a block":        {block("sh", "rewardloop serve \\\n  --gone"), "docs/page.md:4: rewardloop serve has no flag --gone"},
		"a subcommand":             {block("sh", "rewardloop models burn"), `rewardloop models has no "burn"`},
		"a model":                  {block("sh", "rewardloop models pull big-70b"), `no model is called "big-70b"`},
		"a script":                 {block("sh", "python examples/e/gone.py"), "there is no script examples/e/gone.py"},
		"a script's flag":          {block("sh", "python examples/e/train.py --gone"), "examples/e/train.py has no flag --gone"},
		"a program's flag":         {block("sh", "go run ./examples/e --gone"), "examples/e has no flag --gone"},
		"a package":                {block("sh", "go run ./examples/gone"), "there is no package ./examples/gone"},
		"a module":                 {block("sh", "python -m gone"), `there is no Python module "gone"`},
		"a file in a block":        {block("sh", "cat examples/e/gone.json"), "there is no examples/e/gone.json"},
		"a prompt":                 {block("console", "$ make gone\nmake: no"), `docs/page.md:4: make has no target "gone"`},
		"inside a substitution":    {block("sh", "echo $(make gone)"), `make has no target "gone"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, said := check(t, tt.page)
			assert.Equal(t, 1, code)
			assert.Contains(t, said, tt.says)
		})
	}
}

func TestAScriptIsTakenApart(t *testing.T) {
	t.Parallel()
	found := split("A=1 one 'a b' \"c $(two x) d\" # three\nif ! four; then five; fi\nsix \\\n  seven >out 2>&1 <in &\ncat > f.json <<'EOF'\n{\"eight\": 8}\nEOF\nnine", 10)
	var got []string
	for _, c := range found.commands {
		got = append(got, strings.Join(c.words, "|"))
	}
	assert.Equal(t, []string{"two|x", "one|a b|c  d", "four", "five", "six|seven", "cat", "nine"}, got)
	assert.Equal(t, []document{{15, "f.json", "{\"eight\": 8}\n"}}, found.documents)
	assert.Equal(t, 17, found.commands[6].line)
	for _, broken := range []string{"", "'", "\"$(", "$(", "`", "<<", "cat <<EOF", "\\"} {
		split(broken, 1) // Whatever it makes of it, it ends.
	}
}

// A host that is there, one that answers programs with 403, and one that is not there.
func TestLinksToElsewhereAreFollowedWhenAsked(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/closed":
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/gone":
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodHead:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}))
	defer srv.Close()
	for path, want := range map[string]int{"/closed": http.StatusForbidden, "/gone": http.StatusNotFound, "/there": http.StatusOK} {
		status, err := ask(t.Context(), srv.Client(), srv.URL+path)
		require.NoError(t, err)
		assert.Equal(t, want, status)
	}
	srv.Close()
	_, err := ask(t.Context(), srv.Client(), srv.URL)
	assert.Error(t, err)
}

func TestEveryExcuseHasAReason(t *testing.T) {
	t.Parallel()
	for _, e := range excuses() {
		assert.NotEmpty(t, e.why, e.what)
	}
	for _, a := range absences() {
		assert.NotEmpty(t, a.why, a.says)
	}
	for command, why := range strangers() {
		assert.NotEmpty(t, why, command)
	}
}

// The help of a metric and the text of a key are read alone, in Grafana and in grep.
func TestAHelpThatIsLongOrBeginsWithAPronounIsRefused(t *testing.T) {
	t.Parallel()
	root, bin := repository(t, map[string]string{
		"docs/metrics.md": "| metric | type | labels | unit | what it tells | what to do |\n|---|---|---|---|---|---|\n" +
			"| `rewardloop_live_places` | gauge | – | places | Those that live workers have. | – |\n" +
			"| `rewardloop_places` | gauge | – | places | Places " + strings.Repeat("ä", mostHelp-8) + ". | – |\n",
		"docs/configuration.md": "| `lease` | 15s | at least 1s | Time without a heartbeat, `a\\|b`. |\n" +
			"| `age` | 1h | – | Time " + strings.Repeat("x", mostHelp) + ". |\n| `name` | – | – | It has no effect. |\n",
	})
	var out strings.Builder
	code, err := run(t.Context(), []string{"-root", root, "-bin", bin}, &out)
	require.NoError(t, err)
	assert.NotZero(t, code)
	for _, part := range []string{
		"docs/metrics.md:3: the help of `rewardloop_live_places` begins with \"Those\"", "docs/configuration.md:2: the text of `age` has 206 characters, and 200 is the most",
		"docs/configuration.md:3: the text of `name` begins with \"It\"",
	} {
		assert.Contains(t, out.String(), part)
	}
	assert.NotContains(t, out.String(), "rewardloop_places` has", "200 characters, of two bytes each")
	assert.NotContains(t, out.String(), "`lease`")
}
