package redact_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/internal/redact"
)

func TestAnAddressIsShownWithSchemeHostAndPathAlone(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"http://127.0.0.1:8000":                                 "http://127.0.0.1:8000",
		"http://[::1]:8000/v1/chat/completions":                 "http://[::1]:8000/v1/chat/completions",
		"https://user:pw@host/x":                                "https://host/x",
		"https://token@host":                                    "https://host",
		"https://host/x?api_key=k&model=m#access_token=t":       "https://host/x?…",
		"https://host/x#access_token=t":                         "https://host/x",
		"ws://user:ab/cd@host/v1":                               "ws://…",
		"ws://user/ab@host/v1":                                  "ws://…",
		"https://user:p?w@host/v1":                              "https://…",
		"postgres://u:p@h1:1,h2:2/db":                           "postgres://h1:1,h2:2/db",
		"https://hooks.example.com/services/T0/B0/abc":          "https://hooks.example.com/…/…/…/…",
		"https://discord.example/api/webhooks/12/abc-def":       "https://discord.example/api/webhooks/…/…",
		"https://api.example/bot123456:AAF-abcdefghijklmn/send": "https://api.example/…/send",
		"https://h/k/0123456789abcdef0123456789abcdef/x":        "https://h/k/…/x",
		"https://h/6f1c2d3e-0000-4000-8000-0123456789ab":        "https://h/…",
		"https://h/Qwen2.5-VL-7B-Instruct/score":                "https://h/Qwen2.5-VL-7B-Instruct/score",
		"http://h/scorers/{name}":                               "http://h/scorers/{name}",
		"hf://owner/repository/model.onnx@c0ffee":               "hf://owner/repository/model.onnx@c0ffee",
		"builtin://ocr":                                         "builtin://ocr",
		"onnx:///data/0123456789abcdef0123456789abcdef":         "onnx:///data/0123456789abcdef0123456789abcdef",
		"u:pw@proxy:3128":                                       "…@proxy:3128",
		"plain text":                                            "plain text",
	} {
		assert.Equal(t, want, redact.URL(address), address)
	}
}

func TestNamesOfSecretsAreTold(t *testing.T) {
	t.Parallel()
	for name := range strings.FieldsSeq(`api_key apiKey APIKEY x-api-key pwd db_pass password SecretAccessKey AWS_ACCESS_KEY_ID token auth_token
		accesstoken Authorization Proxy-Authorization Cookie session_cookie webhook slack_webhook_url dsn credentials client_secret sig private_key keys`) {
		assert.True(t, redact.Named(name), name)
	}
	for name := range strings.FieldsSeq(`max_tokens token_name tokens_per_minute tokenizer token_file key_file tls_key answer_token score_key extra_keys
		key keyboard author monkey compass preset model pass_rate seed`) {
		assert.False(t, redact.Named(name), name)
	}
}

func TestOfAnOptionOnlyWhatCannotBeASecretIsShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		known      bool
		want       string
	}{
		{"mode", "strict", false, "strict"},
		{"mode", "two_words-more", false, "two_words-more"},
		{"depth", "17", false, "17"},
		{"depth", "1.5e-3", false, "1.5e-3"},
		{"on", "True", false, "True"},
		{"at", "/data/x", false, "/data/x"},
		{"at", "a.db", false, "a.db"},
		{"field", "{response}", false, "{response}"},
		{"prompt", "Does this show {prompt}?", true, "Does this show {prompt}?"},
		{"prompt", "see https://u:p@h/x", true, "see https://h/x"},
		{"key_file", "secrets/key-1", false, "secrets/key-1"},
		{"content-type", "application/json", false, "application/json"},
		{"pwd", "strict", false, redact.Hidden},
		{"pin", "1234", false, redact.Hidden},
		{"mode", "Tr0ub4dor&3", false, redact.Hidden},
		{"mode", "correct horse battery staple", false, redact.Hidden},
		{"n", "1234567890123456", false, redact.Hidden},
		{"at", "host=db password=x", false, redact.Hidden},
		{"at", "user:pw@tcp(host:1)/db", false, redact.Hidden},
		{"api_key", "k", true, redact.Hidden},
	} {
		assert.Equal(t, c.want, redact.Option(c.name, c.text, c.known), "%s: %s", c.name, c.text)
	}
}

func TestSecretsAreCutOutOfTextsAndLogLines(t *testing.T) {
	t.Parallel()
	var w redact.Words
	w.Hide("s3cr&t", "")
	w.HideURL("https://me:pass%20word@h/x?api_key=query-key&model=m")
	text := w.Text("s3cr&t s3cr%26t 'pass word' pass+word bWU6cGFzcyB3b3Jk query-key own model=m", "own")
	assert.Equal(t, "*** *** '***' *** *** *** *** model=m", text)
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: w.Attr}))
	log.With("of", "s3cr&t").WithGroup("g").Debug("said s3cr&t", "error", errors.New("at https://u:x@h/p?q=1: s3cr&t"), "token", "t", "list", []string{"s3cr&t"}, "any", struct{ A string }{"s3cr&t"})
	assert.NotContains(t, out.String(), "s3cr&t")
	assert.Contains(t, out.String(), `g.error="at https://h/p?…: ***"`)
	assert.Contains(t, out.String(), "g.token=***")
	assert.Equal(t, "nothing is known", (*redact.Words)(nil).Text("nothing is known"))
}

func TestSentencesThatNameSecretsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"send Authorization: Bearer with the token of this server's token_file",
		"reward.custom_reward_function.reward_kwargs.api_key: want text",
		"write addresses such as [http://127.0.0.1:8000], or wss:// where server.tls_cert is written",
		"want an address such as http://127.0.0.1:8000, got nothing",
		"what? a=b", "${oc.env:API_KEY}",
	} {
		assert.Equal(t, text, redact.Text(text))
	}
	for text, want := range map[string]string{
		"Authorization: Basic dXNlcjpwYXNz1":     "Authorization: Basic ***",
		"Cookie: session=abcd; other":            "Cookie: ***; other",
		"{'api_key': 'sk-1234'}":                 "{'api_key': '***'}",
		"GET /x?api_key=abc&b=c HTTP/1.1":        "GET /x?… HTTP/1.1",
		"host=db password=hunter2 user=u":        "host=db password=*** user=u",
		"dial nats://tok@h:4222: refused":        "dial nats://h:4222: refused",
		"curl -H 'X-Api-Key: abcdef' http://h/x": "curl -H 'X-Api-Key: ***' http://h/x",
	} {
		assert.Equal(t, want, redact.Text(text))
	}
}
