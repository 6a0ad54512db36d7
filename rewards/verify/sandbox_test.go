package verify_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/verify"
)

func answering(response string) *rewards.Sample {
	return &rewards.Sample{ID: "s1", Response: response}
}

func TestTheSandboxIsAskedToRunTheCode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ response, code string }{
		"the last of its language": {"```python\na\n```\nor\n```python\nb\n```", "\nb\n"},
		"a block of any language":  {"so ```\nx = 1\n``` it is", "\nx = 1\n"},
		"with a language's name":   {"```ruby\nputs 1\n```", "puts 1\n"},
		"without an end":           {"```python\nx", "\nx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := says(t, http.StatusOK, `{"status": "Success", "run_result": {"status": "Finished", "return_code": 0, "stdout": "1\n", "stderr": ""}}`)
			result, err := asking(t, "sandbox_fusion", srv, options{"run_timeout": "2500ms", "memory_limit_mb": 64}).Verify(t.Context(), answering(tt.response))
			require.NoError(t, err)
			assert.JSONEq(t, `{"status":"success","stdout":"1\n","stderr":"","return_code":0}`, string(result))
			assert.Equal(t, map[string]any{
				"compile_timeout": 2.5, "run_timeout": 2.5, "code": tt.code, "stdin": "", "memory_limit_MB": 64.0, "language": "python",
				"files": map[string]any{}, "fetch_files": []any{},
			}, srv.only(t))
		})
	}
}

func TestHowTheCodeEndedIsTheResult(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ answer, result string }{
		"a runtime error":   {`{"status": "Failed", "compile_result": {"status": "Finished", "return_code": 0}, "run_result": {"status": "Finished", "return_code": 1, "stdout": "a", "stderr": "b"}}`, `{"status":"runtime_error","stdout":"a","stderr":"b","return_code":1}`},
		"an error":          {`{"status": "Failed", "run_result": {"status": "Error", "return_code": null, "stderr": "b"}}`, `{"status":"runtime_error","stdout":"","stderr":"b","return_code":null}`},
		"a timeout":         {`{"status": "Failed", "run_result": {"status": "TimeLimitExceeded", "return_code": null, "stdout": "a"}}`, `{"status":"timeout","stdout":"a","stderr":"","return_code":null}`},
		"a compile error":   {`{"status": "Failed", "compile_result": {"status": "Finished", "return_code": 2, "stderr": "b"}, "run_result": null}`, `{"status":"compile_error","stdout":"","stderr":"b","return_code":2}`},
		"a compile timeout": {`{"status": "Failed", "compile_result": {"status": "TimeLimitExceeded"}}`, `{"status":"compile_timeout","stdout":"","stderr":"","return_code":null}`},
		"no reason":         {`{"status": "Failed", "message": "hm"}`, `{"status":"failed","stdout":"","stderr":"hm","return_code":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := asking(t, "sandbox_fusion", says(t, http.StatusOK, tt.answer), nil).Verify(t.Context(), answering("```python\nx\n```"))
			require.NoError(t, err)
			assert.JSONEq(t, tt.result, string(result))
		})
	}
}

func TestAResponseWithoutCodeIsAResultAndNothingIsSent(t *testing.T) {
	t.Parallel()
	srv := says(t, http.StatusOK, `{}`)
	result, err := asking(t, "sandbox_fusion", srv, nil).Verify(t.Context(), answering("I cannot"))
	require.NoError(t, err)
	assert.JSONEq(t, `{"status":"no_code","stdout":"","stderr":"","return_code":null}`, string(result))
	result, err = asking(t, "sandbox_fusion", srv, options{"max_code_bytes": 3}).Verify(t.Context(), answering("```python\nlong\n```"))
	fails(t, rewards.BadInput, result, err, "over max_code_bytes of 3")
	assert.Empty(t, srv.requests())
}

func TestASandboxThatFailsIsAFailureOfItsClass(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		class  rewards.Class
		says   string
	}{
		"its own error":  {http.StatusOK, `{"status": "SandboxError", "message": "no runner"}`, rewards.Unavailable, "no runner"},
		"no run":         {http.StatusOK, `{"status": "Success"}`, rewards.Unavailable, "could not run"},
		"no status":      {http.StatusOK, `{"ok": true}`, rewards.Internal, "no status"},
		"another type":   {http.StatusOK, `{"status": "Success", "run_result": 3}`, rewards.Internal, "not SandboxFusion's"},
		"a list":         {http.StatusOK, `[]`, rewards.Internal, "not SandboxFusion's"},
		"a page":         {http.StatusOK, `<html>`, rewards.Unavailable, "not JSON"},
		"busy":           {http.StatusServiceUnavailable, ``, rewards.Unavailable, "503"},
		"another server": {http.StatusNotFound, ``, rewards.Internal, "404"},
		"a gigabyte":     {http.StatusOK, strings.Repeat(" ", 9<<20), rewards.Internal, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := asking(t, "sandbox_fusion", says(t, tt.status, tt.body), options{"attempts": 1}).Verify(t.Context(), answering("```\nx\n```"))
			fails(t, tt.class, result, err, tt.says)
		})
	}
}

func TestALongOutputIsCutAndSaysSo(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{"letters": "x", "of several bytes": "é", "control characters": "\x00"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := json.Marshal(map[string]any{"status": "Success", "run_result": map[string]any{
				"status": "Finished", "return_code": 0, "stdout": strings.Repeat(unit, 1<<19), "stderr": strings.Repeat(unit, 1<<19),
			}})
			require.NoError(t, err)
			result, err := asking(t, "sandbox_fusion", says(t, http.StatusOK, string(answer)), nil).Verify(t.Context(), answering("```\nx\n```"))
			require.NoError(t, err)
			assert.LessOrEqual(t, len(result), verify.MaxResult)
			assert.Greater(t, len(result), 8<<10)
			var run verify.Run
			require.NoError(t, json.Unmarshal(result, &run))
			assert.True(t, run.Truncated)
			assert.NotContains(t, run.Stdout, "�")
		})
	}
}
