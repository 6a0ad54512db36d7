package main

import (
	"bytes"
	"os"
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
