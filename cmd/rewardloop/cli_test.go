package main

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const sizes = "reward: {custom_reward_function: {path: \"builtin://jpeg_incompressibility\"}}\nserver: {listen: \"127.0.0.1:0\"}\n"

func TestAConfigurationIsAFileAnArgumentOrStandardInputBesideOverrides(t *testing.T) {
	t.Parallel()
	file := put(t, t.TempDir(), "cfg.yaml", []byte(sizes))
	plain := put(t, t.TempDir(), "settings", []byte(sizes))
	want := call(t, "", "config", "print", "-c", file, "reward.num_workers=3")
	require.Equal(t, exitOK, want.code, want.stderr)
	require.Contains(t, want.stdout, "num_workers: 3")
	for _, args := range [][]string{
		{file, "reward.num_workers=3"},
		{"reward.num_workers=3", file},
		{"--config", file, "reward.num_workers=3"},
		{"-c=" + file, "reward.num_workers=3"},
		{"reward.num_workers=3", "-c", file},
		{plain, "++reward.num_workers=3"},
		{"-", "reward.num_workers=3"},
		{"-c", "-", "reward.num_workers=3"},
		{"reward.num_workers=3", "-c-"},
	} {
		require.Equal(t, want, call(t, sizes, append([]string{"config", "print"}, args...)...), args)
	}
	gone := call(t, sizes, "config", "check", "-", "~reward.custom_reward_function", "+reward.reward_functions.a.path=builtin://gsm8k")
	require.Equal(t, exitOK, gone.code, gone.stderr)
	wrong := call(t, "reward: {nothing: 1}\n", "config", "check", "-c", "-")
	require.Equal(t, exitUsage, wrong.code)
	require.Contains(t, wrong.stderr, "standard input:1:")
}

func TestAServerOfAConfigurationFromStandardInputIsReloaded(t *testing.T) {
	t.Parallel()
	p := start(t, "", strings.NewReader(sizes), nil, "serve", "-c", "-")
	got := call(t, "", "reload", "--json", "--server", p.address(t))
	require.Equal(t, exitOK, got.code, got.stderr)
	require.JSONEq(t, `{"applied": [], "restart": []}`, got.stdout)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitOK, p.code(t))
}

func TestServeBeginsBySayingWhatItServesAndWhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := "a-token-of-more-than-thirty-two-characters"
	file := put(t, dir, "token", []byte(token+"\n"))
	for _, args := range [][]string{{}, {"--token-file", file}} {
		stdout := watched()
		p := start(t, "", nil, stdout, append([]string{"serve", "testdata/cfg.yaml", "--listen", "127.0.0.1:0"}, args...)...)
		addr := p.address(t)
		stdout.await(t, "metrics ")
		text := stdout.String()
		require.LessOrEqual(t, strings.Count(text, "\n"), 8)
		require.Contains(t, text, "page     http://"+addr+"/\n")
		require.Contains(t, text, "stream   ws://"+addr+"/v1/stream\n")
		require.Regexp(t, `(?m)^reward   default: \w+`, text)
		require.Contains(t, text, "metrics  http://"+addr+"/metrics\n")
		if len(args) == 0 {
			require.Contains(t, text, "token    none")
			get(t, regexp.MustCompile(`metrics +(\S+)`).FindStringSubmatch(text)[1])
		} else {
			require.Contains(t, text, "token    that of "+file)
			require.NotContains(t, text, token)
		}
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		require.Equal(t, exitOK, p.code(t))
	}
	stdout := watched()
	p := start(t, "", nil, stdout, "serve", "testdata/cfg.yaml", "--listen", "127.0.0.1:0", "--log-format", "json")
	p.stderr.await(t, `"msg":"serving"`)
	require.Empty(t, stdout.String(), "a program reads the log, which says the address and the page")
}

func TestTheAddressOfAServerThatListensEverywhereNamesTheMachine(t *testing.T) {
	t.Parallel()
	name, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, name+":8080", reachable("0.0.0.0:8080"))
	require.Equal(t, name+":8080", reachable("[::]:8080"))
	require.Equal(t, "127.0.0.1:8080", reachable("127.0.0.1:8080"))
	require.Equal(t, "[::1]:8080", reachable("[::1]:8080"))
}

func TestServeSaysWhichReaderReads(t *testing.T) {
	t.Parallel()
	needTesseract(t)
	stdout := watched()
	p := start(t, "", nil, stdout, "serve", "--listen", "127.0.0.1:0", "reward.custom_reward_function.path=builtin://ocr", "+reward.custom_reward_function.reward_kwargs.reader=tesseract")
	p.stderr.await(t, "msg=serving")
	stdout.await(t, "metrics ")
	require.Regexp(t, `(?im)^reader   .*tesseract`, stdout.String())
}

// Every listing is one document that a program reads.
func TestEveryListingIsOneJSONDocument(t *testing.T) {
	t.Parallel()
	file := put(t, t.TempDir(), "cfg.yaml", []byte(sizes))
	for _, args := range [][]string{
		{"version"},
		{"scorers"},
		{"scorers", "ocr"},
		{"models", "list", "--dir", t.TempDir()},
		{"models", "list", "ppocr-v4-mobile", "--dir", t.TempDir()},
		{"devices"},
		{"config", "check", file},
		{"plan", "--reward", "1s", "--samples", "16", "--seeds", "1"},
	} {
		got := call(t, "", append(args, "--json")...)
		require.Equal(t, exitOK, got.code, got.stderr)
		dec := json.NewDecoder(strings.NewReader(got.stdout))
		var document map[string]any
		require.NoError(t, dec.Decode(&document), args)
		require.False(t, dec.More(), "%v print more than one document", args)
		require.NotEmpty(t, document)
	}
}

func TestConfigCheckSaysItsFaultsAsJSON(t *testing.T) {
	t.Parallel()
	got := call(t, "", "config", "check", "testdata/five_faults.yaml", "--json")
	require.Equal(t, exitUsage, got.code)
	require.Empty(t, got.stderr)
	var c checked
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &c))
	require.False(t, c.OK)
	require.Len(t, c.Faults, 5)
	require.Regexp(t, `five_faults\.yaml:2:\d+`, c.Faults[0].Place)
	require.NotEmpty(t, c.Faults[0].Key)
	require.NotEmpty(t, c.Faults[0].Message)
	right := call(t, sizes, "config", "check", "-", "--json")
	require.NoError(t, json.Unmarshal([]byte(right.stdout), &c))
	require.Equal(t, checked{OK: true, Faults: []placed{}, Notes: c.Notes, Profiles: []profileRow{{"default", []string{"jpeg_incompressibility"}}}}, c)
}

func TestModelsListIsALineEachAndOneOfThemIsWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := call(t, "", "models", "list", "--dir", dir)
	require.Equal(t, exitOK, got.code)
	require.Regexp(t, `(?m)^ppocr-v4-mobile +absent +16\.2 MB +Apache-2\.0 +reads printed text`, got.stdout)
	require.NotContains(t, got.stdout, "pip://")
	one := call(t, "", "models", "list", "ppocr-v4-mobile", "--dir", dir)
	require.Contains(t, one.stdout, "pip://")
	require.NotContains(t, one.stdout, "ppocr-v6")
	none := call(t, "", "models", "list", "ppocr-v4-mobil", "--dir", dir)
	require.Equal(t, exitUsage, none.code)
	require.Contains(t, none.stderr, "did you mean ppocr-v4-mobile?")
}

func TestShellsCompleteCommandsFlagsAndNames(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		got := call(t, "", "completion", shell)
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Contains(t, got.stdout, "rewardloop")
		require.Greater(t, len(got.stdout), 1000)
	}
	for want, args := range map[string][]string{
		"status\t":          {"sta"},
		"--listen\t":        {"serve", "--li"},
		"gsm8k\t":           {"scorers", "gs"},
		"ppocr-v4-mobile\t": {"models", "pull", "pp"},
		"debug\n":           {"serve", "--log-level", ""},
		"fish\n":            {"completion", ""},
		":8\n":              {"serve", ""}, // files by their extension
	} {
		got := call(t, "", append([]string{"__complete"}, args...)...)
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Contains(t, got.stdout, want, args)
	}
}

func TestTheVariableNoColorAndWhatIsNoTerminalKeepTextPlain(t *testing.T) {
	t.Parallel()
	lookup := func(vars map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	}
	e := env{stdout: new(strings.Builder), getenv: lookup(nil)}
	require.Equal(t, "ok", e.colour(green, "ok"))
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("SKIPPED: no terminal can be opened: %v", err)
	}
	defer terminal.Close()
	e.stdout = terminal
	require.Equal(t, "\x1b[32mok\x1b[0m", e.colour(green, "ok"))
	for _, vars := range []map[string]string{{"NO_COLOR": "1"}, {"TERM": "dumb"}} {
		e.getenv = lookup(vars)
		require.Equal(t, "ok", e.colour(green, "ok"))
	}
}

func TestAnAnswerOfARefusalNamesTheTokenFlag(t *testing.T) {
	t.Parallel()
	file := put(t, t.TempDir(), "token", []byte("a-token-of-more-than-thirty-two-characters\n"))
	_, addr := serving(t, "testdata/cfg.yaml", "--token-file", file)
	got := call(t, "", "status", "--server", addr)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, http.StatusText(http.StatusUnauthorized))
	require.Contains(t, got.stderr, "--token-file")
	require.Contains(t, asks(t, addr, nil, "status", "--token-file", file), "  ready\n")
}
