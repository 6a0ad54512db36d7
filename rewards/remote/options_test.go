package remote_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/remote"
)

func TestEveryWrongOptionIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		name    string
		options options
		says    []string
	}{
		"nothing": {"http", options{}, []string{`protocol: "" is unknown, want one of deepgen`, "url: is missing"}},
		"many": {"http", options{
			"protocol": "deqa", "url": "ftp://h", "quality": 0, "image_format": "png", "video": "last", "batch": 0, "batch_wait": "2h",
			"score_scale": 0, "attempts": 21, "attempt_timeout": "-1s", "concurrency": -1, "rpm": -1,
			"headers": options{"Authorization": "Bearer hidden", "bad name": "x"}, "surprise": 1, "noise_level": 0.4, "score_bias": "high",
			"extras": []options{{"name": "a"}, {"name": "a"}, {"kind": "list"}, {"name": "b", "path": "x..y"}},
		}, []string{
			"url: must begin with http", "quality: is 0", "image_format: DeQA's server refuses PNG", `video: "last" is unknown`, "batch: is 0",
			"batch_wait: is 2h", "score_scale: is 0", "attempts: is 21", "attempt_timeout: is -1s", "concurrency: is -1", "rpm: is -1",
			"headers: Authorization is made from key_file", `headers: "bad name" is not the name`, "surprise: unknown option; http has protocol, url",
			"noise_level: unknown option of the protocol deqa", "score_bias: ", `extras[1]: duplicate name "a"`, "extras[2]: has no name",
			`extras[2]: kind "list" is unknown`, "extras[3].path:",
		}},
		"another case":       {"http", options{"protocol": "deqa", "URL": "http://h"}, []string{"URL: unknown option", "url: is missing"}},
		"both":               {"http", options{"protocol": "deqa", "url": "http://h", "urls": []string{"http://h"}}, []string{"urls[0]: is a duplicate"}},
		"twice":              {"http", options{"protocol": "deqa", "urls": []string{"http://h", "http://h", "http://"}}, []string{"urls[1]: is a duplicate", "urls[2]: names no host"}},
		"user and key":       {"http", options{"protocol": "deqa", "url": "http://u:hidden@h", "key_file": "k"}, []string{"url: has a user in addition to key_file"}},
		"line break":         {"http", options{"protocol": "deqa", "url": "http://h", "headers": options{"X": "hidden\r\ny"}}, []string{"the value of X contains a control character"}},
		"unirl":              {"http", options{"protocol": "unirl", "url": "http://h", "sub_metric_reduce": "sum", "prompt": "caption", "metadata": "prompt.x"}, []string{"reward: is missing", "sub_metric_reduce:", `prompt: "caption" is not a field`, "metadata: "}},
		"latent":             {"http", options{"protocol": "latent", "url": "http://h", "noise_level": 1.5, "noise_seed": 0.5, "batch": 2}, []string{"noise_level: is 1.5", "noise_seed:", "batch: unknown option of the protocol latent"}},
		"geneval":            {"http", options{"protocol": "geneval", "url": "http://h", "geneval_value": "rewards", "only_strict": true, "source_image": 1}, []string{"geneval_value: with only_strict", "source_image: unknown option of the protocol geneval"}},
		"cosmos":             {"http", options{"protocol": "cosmos", "urls": []string{"http://a", "http://b"}, "reward": "r"}, []string{"urls: a cosmos server keeps"}},
		"metadata":           {"http", options{"protocol": "deepgen", "url": "http://h", "metadata": "extra_info", "batch_wait": "10ms"}, []string{"metadata: a request with an object"}},
		"json":               {"http", options{"protocol": "json", "url": "http://h", "score_path": ".a"}, []string{"request: is missing", "score_path:"}},
		"template":           {"http", options{"protocol": "json", "url": "http://h", "request": options{"a": "{promt}", "b": "x {", "c": "{frames_b64} {image_b64}", "d": "{frames_b64}"}}, []string{`the placeholder {promt}: "promt" is not a field`, "an unpaired brace", "must be the whole text", "both {frames_b64} and a single picture"}},
		"template no object": {"http", options{"protocol": "json", "url": "http://h", "request": []any{"{prompt}"}}, []string{"request: is list, want an object"}},
		"sandbox": {"sandbox_fusion", options{
			"url": "nowhere", "max_concurrent": 0, "memory_limit_mb": 0, "run_timeout": "10ms", "language": "cobol", "sandbox_error": "zero", "test_cases": "tests",
			"max_cases": 0, "max_case_bytes": 0, "max_code_bytes": 0, "concurrency": 3,
		}, []string{
			"url: must begin with", "max_concurrent: is 0", "memory_limit_mb: is 0", "run_timeout: is 10ms", `language: "cobol"`, `sandbox_error: "zero"`, "test_cases:",
			"max_cases:", "max_case_bytes:", "max_code_bytes:", "concurrency: unknown option",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc, err := buildNamed(t, tt.name, &groups{}, tt.options)
			require.Error(t, err)
			assert.Nil(t, sc)
			for _, text := range tt.says {
				require.ErrorContains(t, err, text)
			}
			assert.NotContains(t, err.Error(), "hidden", "a secret is not repeated")
		})
	}
}

func TestWithoutGroupsBothScorersAreListedAndSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	specs := remote.Specs(nil)
	require.Len(t, specs, 2)
	for _, s := range specs {
		raw := options{"url": "http://h"}
		if s.Name == "http" {
			raw["protocol"] = "deqa"
		}
		_, err := s.Build(raw.raw(t))
		require.ErrorContains(t, err, "no HTTP client")
		_, err = s.Build(nil)
		assert.ErrorContains(t, err, "url: is missing")
	}
}

func TestTheGroupIsAskedForByAddressesWithoutTheProtocolsPath(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://h:1/score": "http://h:1", "http://h:1/score/": "http://h:1", "http://h:1": "http://h:1", "https://h/api/score?x=1": "https://h/api?x=1",
		"http://h/rescore": "http://h/rescore",
	} {
		g := &groups{}
		_, err := buildNamed(t, "http", g, options{
			"protocol": "unirl", "reward": "r", "urls": []string{url}, "key_file": "/k", "attempts": 2, "attempt_timeout": 2.5, "concurrency": 7, "idle_timeout": "1m", "rpm": 60,
		})
		require.NoError(t, err)
		assert.Equal(t, []string{want}, g.urls)
		assert.Equal(t, remote.UpstreamOptions{KeyFile: "/k", Attempts: 2, Timeout: 2500 * time.Millisecond, Concurrency: 7, RPM: 60, IdleTimeout: time.Minute}, g.options)
	}
}

type refusing struct{}

func (refusing) Upstream([]string, remote.UpstreamOptions) (outbound.Doer, error) {
	return nil, errors.New("the address is not on the list")
}

func TestAnAddressThatIsNotAllowedFailsTheBuild(t *testing.T) {
	t.Parallel()
	_, err := buildNamed(t, "http", refusing{}, options{"protocol": "deqa", "url": "http://h"})
	assert.ErrorContains(t, err, "not on the list")
}

func TestTheReadmeNamesEveryOptionAndProtocol(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("README.md"))
	require.NoError(t, err)
	for _, s := range remote.Specs(nil) {
		for _, o := range s.Options {
			assert.Contains(t, string(text), "`"+o.Name+"`", s.Name)
		}
	}
	protocols, _, _ := strings.Cut(remote.Specs(nil)[0].Options[0].Doc, "\n")
	for p := range strings.SplitSeq(strings.TrimPrefix(protocols, "protocol of the service: "), ", ") {
		assert.Contains(t, string(text), "`"+p+"`")
	}
}

func FuzzOptionsNeverPanic(f *testing.F) {
	f.Add(`{"protocol":"json","url":"http://h","request":{"a":"{prompt} {{ {extra_info.a.0}"},"score_path":"a.0"}`)
	f.Add(`{"protocol":"latent","urls":["http://h"],"noise_seed":null}`)
	f.Add(`{"batch_wait":"1h","quality":1e9,"extras":[{}]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		for _, s := range remote.Specs(&groups{}) {
			sc, err := s.Build(json.RawMessage(raw))
			if err == nil {
				require.NotNil(t, sc)
				if c, ok := sc.(rewards.Closer); ok {
					require.NoError(t, c.Close())
				}
			}
		}
	})
}

// No answer, whatever it is, becomes a score that is not finite, or a panic.
func FuzzAnswersAreAScoreOrAFailure(f *testing.F) {
	for _, body := range []string{`{"rewards":[0.5]}`, `{"rewards":[NaN]}`, `{"results":[{"r":{"a":1}}]}`, `0.5`, `{"protocol_version":"1","raw_scores":[1]}`, "\x80\x04}\x8c\x06scores]Ga.s."} {
		f.Add(200, []byte(body))
	}
	f.Add(500, []byte("\x80\x04}\x8c\x05error\x8c\x01xs."))
	all := []options{
		{"protocol": "deepgen"},
		{"protocol": "deqa"},
		{"protocol": "geneval", "metadata": "extra_info"},
		{"protocol": "unirl", "reward": "r"},
		{"protocol": "flow_factory"},
		{"protocol": "json", "request": options{"p": "{prompt}"}},
		{"protocol": "cosmos", "reward": "r"},
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		for _, o := range all {
			g := &groups{doer: fixed{status, body}}
			sc, err := buildNamed(t, "http", g, options{"url": "http://h"}.with(o))
			require.NoError(t, err)
			score, err := sc.Score(t.Context(), sample(t))
			if err != nil {
				require.Equal(t, rewards.Score{}, score)
				require.NotEmpty(t, rewards.ClassOf(err))
				continue
			}
			require.False(t, math.IsNaN(score.Value) || math.IsInf(score.Value, 0))
		}
	})
}
