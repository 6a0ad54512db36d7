package config_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden.yaml")

func printed(t *testing.T, c *config.Config) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, c.Print(&b))
	return b.String()
}

// TestGoldenPrint holds what `config print` shows of the two example files.
func TestGoldenPrint(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"minimal", "full"} {
		c, err := config.Load("testdata/"+name+".yaml", nil, env("API_KEY", "k-123"))
		require.NoError(t, err)
		got, golden := printed(t, c), "testdata/"+name+".golden.yaml"
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		assert.Equal(t, string(want), got, "run go test ./config -update if this is meant")
		for _, secret := range []string{"k-123", "hunter2", "user:pw"} {
			assert.NotContains(t, got, secret)
		}
	}
}

func TestWhatIsPrintedMeansTheSame(t *testing.T) {
	t.Parallel()
	for _, text := range []string{minimal, `
reward:
  on_sample_failure: value:0.25
  aggregation: max
  reward_functions:
    "1": {path: "builtin://a", timeout: 250ms, retries: 0, on_failure: zero, "on": yes, "x y": {b: [1e30, 1.0, -7, "7", null]}}
    b: {path: "builtin://b", weight: 1e-9, required: "True", text: "tab\t nul\0 del\x7f nel\x85 \u2028 \U0001F600 ${oc.env:NOPE,<a>}"}
rewards:
  null: {custom_reward_function: {path: builtin://c, invalid_values: -1}}
loop: {run_weights: {"a: b": 0.1, c: 3}, component_timeout: 1.5, max_bytes: 1073741825}
server: {listen: "localhost:0", token_file: "/a b#c", body_bytes: 3MB}
`, `
reward:
  custom_reward_function: {path: "http://judge:1/score", reward_kwargs: {protocol: json, key_file: /k}}
  reward_model: {enable: true, model_path: m/n, rollout: {name: external, base_urls: ["http://a:1", "http://b:2"], tokens_per_minute: 9}}
  reward_manager: {name: dapo}
  reward_kwargs: {max_resp_len: 90, overlong_buffer_cfg: {enable: true, len: 30, penalty_factor: 0.5, log: true}}
  sandbox_fusion: {url: "http://s:3/run_code", memory_limit_mb: 64}
  reward_fn_key: extra_info.kind
  group_by: prompt
  verify:
    sql: {kind: command, argv: [sqlite3, a.db], timeout: 5s}
    web: {kind: http, required: false, url: "http://v:1", request: {a: "{response}"}}
rewards:
  routed:
    reward_functions:
      a: {path: builtin://a, when: [ocr, "7"], clip: [-1, 2.5], scale: 0.1}
      b: {path: builtin://b, min_members: all}
      c: {path: builtin://b, min_members: 3, when: x}
      d: {path: pkg://mine, name: Agent, weight: 0}
      e: {post_process: d, weight: 2}
  other: {custom_reward_function: {path: builtin://c}, reward_model: {enable: true, model_path: o, rollout: {name: external, base_urls: "http://c:1"}}}
engines:
  judge: {base_urls: ["http://d:1/v1/"], model: j, key_file: /k, concurrency: 7, timeout: 3s, attempts: 1, cache_bytes: 0, prompt_price: 0.25}
outbound: {allow: [10.0.0.0/8, judge.local], proxy: "http://p:1"}
`} {
		c := parse(t, text)
		again, err := config.Parse("again.yaml", []byte(printed(t, c)), nil, nil)
		require.NoError(t, err, printed(t, c))
		assert.Equal(t, printed(t, c), printed(t, again))
		assert.Equal(t, c.Loop, again.Loop)
		assert.Equal(t, c.Server, again.Server)
		assert.Equal(t, c.Outbound, again.Outbound)
		require.Equal(t, c.EngineNames(), again.EngineNames())
		for name, e := range c.Engines {
			e.Place = again.Engines[name].Place
			assert.Equal(t, e, again.Engines[name])
		}
		for name, p := range c.Profiles {
			assert.Equal(t, p.Overlong, again.Profiles[name].Overlong)
			assert.Equal(t, string(p.Sandbox), string(again.Profiles[name].Sandbox))
			assert.Equal(t, p.Engine, again.Profiles[name].Engine)
			assert.Equal(t, p.RouteBy, again.Profiles[name].RouteBy)
			assert.Equal(t, p.GroupByPrompt, again.Profiles[name].GroupByPrompt)
			require.Len(t, again.Profiles[name].Verify, len(p.Verify))
			for i, v := range p.Verify {
				v.Place = again.Profiles[name].Verify[i].Place
				assert.EqualExportedValues(t, v, again.Profiles[name].Verify[i])
			}
			for i, component := range p.Components {
				q := again.Profiles[name].Components[i]
				component.Place = q.Place
				assert.Equal(t, string(component.Options), string(q.Options))
				assert.EqualExportedValues(t, component, q)
			}
		}
	}
}

func TestTheDefaultsPrintWithoutARewardAndAreComplete(t *testing.T) {
	t.Parallel()
	text := printed(t, config.Default()) + "rewards: {a: {custom_reward_function: {path: builtin://a}}}\n"
	c := parse(t, text)
	assert.Equal(t, config.Default().Loop, c.Loop)
	assert.Equal(t, config.Default().Pool, c.Pool)
	assert.Equal(t, config.Default().Server, c.Server)
}
