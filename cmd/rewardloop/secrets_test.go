package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// planted are secrets in the forms in which configurations have them. Each is found by its
// own text, which nothing else has.
var planted = map[string]string{
	"a password in an engine's address":             "engine-pa55-Kj2",
	"a key in the query of an address":              "query-k3y-Lp9",
	"a user without a password":                     "user-t0ken-Wq4",
	"an option named pwd":                           "pwd-Zx8cvbn",
	"an option named SecretAccessKey":               "wJalrXUtnFEMI/K7MDENG/bPxRfiCY",
	"the path of a webhook":                         "hook-Bq7Xz",
	"the path of a bot's address":                   "AAF-abcdEFGH1234ijklMNOP",
	"a header Authorization":                        "auth-header-5Tg",
	"a header Cookie":                               "cookie-session-8Uh",
	"a header of another name":                      "org-header-6Yj",
	"a variable of the environment":                 "from-env-4Rf",
	"the default of a variable":                     "env-default-3Ed",
	"a connection string that is an address":        "dsn-url-2Ws",
	"a connection string of words":                  "dsn-words-1Qa",
	"a key of a mapping of credentials":             "credential-9Ol",
	"a signature in a query":                        "sas-signature-7Ik",
	"an argument behind a flag":                     "argument-6Uj",
	"an argument with a flag":                       "flagged-5Yh",
	"a field of a request":                          "request-field-4Tg",
	"the part of an address after #":                "fragment-3Rf",
	"a token under a name that does not tell":       "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
	"a number that is a PIN":                        "48151623",
	"a proxy's password":                            "proxy-pa55-2Ed",
	"a token in the address of NATS":                "nats-t0ken-1Ws",
	"what a key file holds":                         "key-file-0Qa9Zsx",
	"what the token file holds":                     "token-file-8Wsx7Edc6Rfv",
	"a key of an address that is not valid":         "refused-k3y-5Tgb",
	"a secret of an override":                       "override-6Yhn",
	"a secret where another thing is wanted, alone": "misplaced-7Ujm",
}

// leaky has most of them; %s are the address of the echo, the folder, and the interpreter.
const leaky = `
reward:
  num_workers: 1
  custom_reward_function:
    path: leaky.py
    reward_kwargs:
      pwd: pwd-Zx8cvbn
      pin: 48151623
      aws: {SecretAccessKey: wJalrXUtnFEMI/K7MDENG/bPxRfiCY, region: eu}
      webhook: https://hooks.example.com/services/T0/B0/hook-Bq7Xz
      notify: https://bots.example.com/bot123456:AAF-abcdEFGH1234ijklMNOP/send
      other: https://user-t0ken-Wq4@example.com/x#access_token=fragment-3Rf
      blob: https://store.example.com/c/b?sv=1&sig=sas-signature-7Ik
      api_key: ${oc.env:LEAKY_KEY}
      fallback_token: ${oc.env:LEAKY_NONE,env-default-3Ed}
      db: postgres://app:dsn-url-2Ws@db.example.com/app
      conn: host=db user=app password=dsn-words-1Qa
      credentials: {kind: basic, value: credential-9Ol}
      plain: ghp_16C7e42F292c6912E7710c838347Ae178B4a
      argv: [curl, --token, argument-6Uj, --password=flagged-5Yh]
rewards:
  remote:
    custom_reward_function:
      path: http://me:remote-pa55@%[1]s/score?api_key=query-k3y-Lp9
      reward_kwargs:
        protocol: json
        attempts: 1
        request: {text: "{response}", api_key: request-field-4Tg}
        score_path: score
        headers: {Authorization-Of: Bearer auth-header-5Tg, Cookie: cookie-session-8Uh, X-Org: org-header-6Yj}
  judge:
    custom_reward_function:
      path: builtin://disrm
      reward_kwargs: {engine: judge}
  keyed:
    custom_reward_function:
      path: http://%[1]s/keyed
      reward_kwargs: {protocol: json, attempts: 1, key_file: %[2]s/key, request: {text: "{response}"}, score_path: score}
engines:
  judge: {base_urls: ["http://judge:engine-pa55-Kj2@%[1]s"], model: m, attempts: 1}
pool: {python: {interpreter: %[3]s, processes: 1}, models_dir: %[2]s}
server: {listen: "127.0.0.1:0", token_file: %[2]s/token}
`

// outputs are texts by where they come from.
type outputs map[string]string

func (o outputs) hold(t *testing.T) {
	t.Helper()
	for from, text := range o {
		for form, secret := range planted {
			assert.NotContains(t, text, secret, "%s is in %s", form, from)
		}
		assert.NotContains(t, text, "remote-pa55", from)
	}
}

// run runs the binary with the secret of the environment to its end.
func (o outputs) run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Env = append(os.Environ(), "LEAKY_KEY=from-env-4Rf")
	out, err := cmd.CombinedOutput()
	require.NotEmpty(t, out, "%s: %v", name, err)
	o[name] = string(out)
}

// leak writes the configuration, and what it names, whose functions fail and quote all that
// they were given.
func leak(t *testing.T) (dir, cfg string) {
	t.Helper()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := httputil.DumpRequest(r, true)
		assert.NoError(t, err)
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write(bytes.ReplaceAll(all, []byte("\r\n"), []byte(" ")))
	}))
	t.Cleanup(echo.Close)
	interpreter := needPython(t)
	dir = t.TempDir()
	put(t, dir, "key", []byte("key-file-0Qa9Zsx\n"))
	put(t, dir, "token", []byte("token-file-8Wsx7Edc6Rfv\n"))
	put(t, dir, "leaky.py", []byte("import sys\ndef compute_score(solution_str, **kwargs):\n"+
		"    print(kwargs)\n    print(kwargs, file=sys.stderr)\n"+
		"    raise RuntimeError('; '.join(f'{k}={v}' for k, v in kwargs.items()))\n"))
	return dir, put(t, dir, "cfg.yaml", fmt.Appendf(nil, leaky, strings.TrimPrefix(echo.URL, "http://"), dir, interpreter))
}

func TestTwentySecretsAreInNoOutput(t *testing.T) {
	t.Parallel()
	dir, cfg := leak(t)
	o := outputs{}
	o.run(t, "config print", "config", "print", "-c", cfg)
	o.run(t, "config check", "config", "check", "-c", cfg)
	o.run(t, "doctor", "doctor", "-c", cfg)
	o.run(t, "doctor --json", "doctor", "--json", "-c", cfg)
	require.Contains(t, o["config print"], "https://bots.example.com/…/send")
	require.Contains(t, o["config print"], "${oc.env:LEAKY_KEY}")
	require.Contains(t, o["config check"], "ok: 4 rewards")

	for name, override := range map[string]string{
		"the error of an address":          "++engines.judge.base_urls=[http://h:1?api_key=refused-k3y-5Tgb]",
		"the error of a NATS":              "++queue.nats=[http://nats-t0ken-1Ws@h:1]",
		"the error of an override":         "++reward.custom_reward_function.api_key=override-6Yhn",
		"the error of a kind":              "++reward.custom_reward_function.reward_kwargs.pwd.x=override-6Yhn",
		"the error of an http address":     "++rewards.remote.custom_reward_function.path=http://x:refused-k3y-5Tgb@",
		"the error of an option":           "++rewards.remote.custom_reward_function.reward_kwargs.token=override-6Yhn",
		"the error of a proxy":             "++outbound.proxy=x://u:proxy-pa55-2Ed@h",
		"the error of options that a list": "++rewards.remote.custom_reward_function.reward_kwargs.secret=[misplaced-7Ujm]",
	} {
		o.run(t, name, "config", "check", "-c", cfg, override)
		require.NotContains(t, o[name], "ok: ", name)
	}
	o.run(t, "config print with NATS and a proxy", "config", "print", "-c", cfg, "++queue.nats=[nats://nats-t0ken-1Ws@h:1]", "++outbound.proxy=http://u:proxy-pa55-2Ed@h:3128")
	require.Contains(t, o["config print with NATS and a proxy"], `nats: ["nats://h:1"]`)
	require.Contains(t, o["config print with NATS and a proxy"], `proxy: "http://h:3128"`)

	worker := start(t, dir, nil, nil, "worker", "-c", cfg, "--join", "nats://nats-t0ken-1Ws@127.0.0.1:1", "--log-level", "debug", "++reward.custom_reward_function.reward_kwargs.api_key=k123456")
	worker.stderr.await(t, "cannot be reached yet")
	o["a worker's log"] = worker.stderr.String()
	o.hold(t)
}

func TestASecretOfAFailingRewardIsInNoAnswerAndNoLog(t *testing.T) {
	t.Parallel()
	dir, cfg := leak(t)
	for _, format := range []string{"text", "json"} {
		o := outputs{}
		var stdout lockedBuffer
		p := startIn(t, dir, append(os.Environ(), "LEAKY_KEY=from-env-4Rf"), nil, &stdout, "serve", "-c", cfg, "--log-level", "debug", "--log-format", format, "loop.num_examine=9")
		p.stderr.await(t, "serving")
		addr := after(p.stderr.String(), "serving", format)
		ask := func(method, path, body string) string {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer token-file-8Wsx7Edc6Rfv")
			res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
			require.NoError(t, err)
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NotEqual(t, http.StatusUnauthorized, res.StatusCode, "%s", b)
			return string(b)
		}
		for _, reward := range []string{"default", "remote", "judge", "keyed"} {
			answer := ask(http.MethodPost, "/v1/score", `{"reward": "`+reward+`", "deadline_ms": 20000, "samples": [{"id": "`+reward+`", "prompt": "p", "response": "r", "ground_truth": "g"}]}`)
			require.Contains(t, answer, `"outcome":"failed"`, "%s: %s\n%s", reward, answer, p.stderr)
			o["the answer of "+reward] = answer
		}
		require.Contains(t, o["the answer of default"], "***")
		require.Contains(t, o["the answer of remote"], "POST /score")
		for _, path := range []string{
			"/", "/v1/pending", "/v1/failures", "/v1/workers", "/v1/runs", "/v1/runs/_score/steps/0", "/v1/runs/_score/steps/0/trace", "/v1/scorers",
			"/rewards", "/health", "/healthz", "/readyz", "/readyz?reward=remote", "/metrics", "/v1/models", "/nothing?api_key=x",
		} {
			o["GET "+path] = ask(http.MethodGet, path, "")
		}
		require.Contains(t, o["GET /v1/failures"], "***")
		o["the log"], o["standard output"] = p.stderr.String(), stdout.String()
		require.Contains(t, o["the log"], "a sample failed", "%s", o["the log"])
		o.hold(t)
	}
}

// after is the address in the line of a log that says a thing.
func after(log, says, format string) string {
	sign, end := "address=", " "
	if format == "json" {
		sign, end = `"address":"`, `"`
	}
	_, rest, _ := strings.Cut(log, says)
	_, rest, _ = strings.Cut(rest, sign)
	rest, _, _ = strings.Cut(rest, end)
	return filepath.Clean(rest)
}
