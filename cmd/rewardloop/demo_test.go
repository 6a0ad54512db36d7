package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheDemoSaysWhatIsWrongWithHowItWasAsked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"an argument":         {[]string{"demo", "extra"}, exitUsage, `unexpected "extra"`},
		"nothing to verify":   {[]string{"demo", "--verify", "--out", t.TempDir()}, exitFailure, "run the demo first"},
		"no pictures there":   {[]string{"demo", "--data", t.TempDir()}, exitFailure, "samples.jsonl"},
		"no pictures at all":  {[]string{"demo"}, exitFailure, "name the folder with --data"},
		"fewer than none":     {[]string{"demo", "--samples", "-1", "--data", "../../testdata/golden/ocr"}, exitFailure, "-1 samples"},
		"a flag nobody knows": {[]string{"demo", "--fast"}, exitUsage, "-fast"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), tt.args, env{stdout: &stdout, stderr: &stderr, getenv: os.LookupEnv})
			require.Equal(t, tt.code, code, &stderr)
			assert.Contains(t, stderr.String(), tt.says)
			assert.Empty(t, stdout.String())
		})
	}
}

// With --stay the server outlives the demo: its page answers until Ctrl-C, which is no failure.
func TestTheDemosServerStaysUpUntilCtrlC(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	needTesseract(t)
	dir := t.TempDir()
	data, err := filepath.Abs("../../testdata/golden/ocr")
	require.NoError(t, err)
	stdout := watched()
	p := start(t, dir, nil, stdout, "demo", "--stay", "--reader", "tesseract", "--samples", "16", "--data", data, "--out", dir)
	stdout.await(t, "Ctrl-C ends it.")
	assert.Contains(t, stdout.String(), "rm_scores     float32 [16, 1]: batch")
	assert.Contains(t, stdout.String(), `if self.use_rm and "rm_scores" not in batch.batch.keys():`)
	assert.Contains(t, stdout.String(), filepath.Join(dir, "report.html"))
	address := regexp.MustCompile(`Its page: (\S+)`).FindStringSubmatch(stdout.String())
	require.NotNil(t, address)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address[1], nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/html")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	page, err := io.ReadAll(res.Body)
	require.NoError(t, errors.Join(err, res.Body.Close()))
	assert.Contains(t, string(page), "<title>rewardloop</title>")
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.Equal(t, exitOK, p.code(t), p.stderr)
}
