package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

const minimal = "reward: {reward_functions: {ocr: {path: \"builtin://ocr\"}}}\n"

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func parse(t *testing.T, text string, overrides ...string) *config.Config {
	t.Helper()
	c, err := config.Parse("c.yaml", []byte(text), overrides, nil)
	require.NoError(t, err)
	return c
}

// faults parses and returns the lines of the error.
func faults(t *testing.T, text string, overrides ...string) []string {
	t.Helper()
	_, err := config.Parse("c.yaml", []byte(text), overrides, nil)
	require.Error(t, err)
	var all config.FaultsError
	require.ErrorAs(t, err, &all)
	return strings.Split(err.Error(), "\n")
}

func TestAMinimalFileTakesEveryDefault(t *testing.T) {
	t.Parallel()
	c, err := config.Load("testdata/minimal.yaml", nil, nil)
	require.NoError(t, err)
	want := config.Default()
	assert.Equal(t, want.Loop, c.Loop)
	assert.Equal(t, want.Pool, c.Pool)
	assert.Equal(t, want.Server, c.Server)
	assert.Equal(t, 8, c.NumWorkers)
	p := c.Profiles[config.DefaultProfile]
	require.Len(t, p.Components, 1)
	assert.False(t, p.Single)
	assert.Equal(t, rewards.WeightedSum, p.Aggregation)
	assert.Equal(t, rewards.PolicyNone, p.OnSampleFailure.Policy)
	component := p.Components[0]
	assert.Equal(t, []any{"ocr", "ocr", 1.0, false, 120 * time.Second, 0, "testdata/minimal.yaml:5:5"},
		[]any{component.Key, component.Scorer, component.Weight, component.Required, component.Timeout, component.Retries, component.Place.String()})
	assert.Nil(t, component.Options)
}

func TestAFullFileIsReadCompletely(t *testing.T) {
	t.Parallel()
	c, err := config.Load("testdata/full.yaml", nil, env("API_KEY", "k-123"))
	require.NoError(t, err)
	p := c.Profiles["default"]
	assert.Equal(t, 4, c.NumWorkers)
	assert.Equal(t, rewards.PolicyGroupMean, p.OnSampleFailure.Policy)
	require.Len(t, p.Components, 2)
	assert.JSONEq(t, `{"preset":"flow_grpo"}`, string(p.Components[0].Options))
	assert.True(t, p.Components[0].Required)
	assert.Equal(t, 20*time.Second, p.Components[0].Timeout)
	assert.JSONEq(t, `{"quality":95}`, string(p.Components[1].Options))
	assert.Equal(t, rewards.ComponentPolicy{Policy: rewards.PolicyValue, Value: -0.5}, p.Components[1].OnFailure)
	assert.Equal(t, []float64{-999, -1}, p.Components[1].InvalidValues)

	text := c.Profiles["text"]
	assert.True(t, text.Single)
	assert.True(t, text.Components[0].Required)
	assert.Equal(t, "remote", text.Components[0].Key)
	assert.JSONEq(t, `{"api_key":"k-123","greeting":"hello world","nested":{"password":"hunter2",
		"url":"https://user:pw@example.com/x","depth":[1,2.5,null,true]}}`, string(text.Components[0].Options))

	answer := c.Profiles["answer"].Components[0]
	assert.Equal(t, []string{"python", "default_compute_score"}, []string{answer.Scorer, answer.Function})
	assert.JSONEq(t, `{"format_score":0.1}`, string(answer.Options))
	assert.Equal(t, int64(4<<30), c.Pool.Python.MemoryBytes)
	assert.Equal(t, ".venv/bin/python", c.Pool.Python.Interpreter)

	assert.Equal(t, int64(2<<30), c.Loop.MaxBytes)
	assert.Equal(t, 10*time.Minute, c.Loop.SampleTimeout)
	assert.Equal(t, map[string]float64{"ocr_run": 2, "other": 0.5}, c.Loop.Weights)
	assert.Equal(t, 3, c.Profiles[config.DefaultProfile].Concurrency)
	assert.Equal(t, tesseract.Config{PSM: 6, Language: "eng+deu", Timeout: 30 * time.Second}, c.Pool.Tesseract)
	assert.Equal(t, "/etc/rewardloop/token", c.Server.TokenFile)
}

func TestFiveFaultsAreReportedTogetherWithTheirLines(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{
		`c.yaml:2:16: reward.num_workers: want a whole number, got "many"`,
		`c.yaml:3:3: reward.agregation: no such key; did you mean aggregation?`,
		`c.yaml:5:48: reward.reward_functions.ocr.weight: want a finite number, got "heavy"`,
		`c.yaml:9:5: reward.reward_functions.ocr: duplicate key, first on line 5`,
		`c.yaml:11:14: loop.max_bytes: want a size such as 64MiB, got "64 megs"`,
	}, faults(t, `reward:
  num_workers: many
  agregation: weighted_sum
  reward_functions:
    ocr: {path: "builtin://ocr", weight:       heavy}
    jpeg:
      path: builtin://jpeg
      quality: 95
    ocr:
loop:
  max_bytes: 64 megs
`))
}

func TestEveryKindOfFaultNamesKeyLineAndRemedy(t *testing.T) {
	t.Parallel()
	const ok = minimal
	for name, c := range map[string]struct{ text, want string }{
		"empty":              {"", "no reward is named"},
		"no mapping":         {"- a\n", "c.yaml:1:1: want sections such as reward and server, got a list"},
		"no YAML":            {"reward: {\n", "this is not YAML"},
		"bad indent":         {"reward:\n  a: 1\n b: 2\n", "c.yaml:2:1: this is not YAML"},
		"two documents":      {ok + "---\n" + ok, "a second document begins here"},
		"alias":              {"reward: &r {reward_functions: {a: {path: \"builtin://a\"}}}\nrewards: {b: *r}\n", "c.yaml:2:14: rewards.b: aliases (*r) are not supported"},
		"merge":              {ok + "loop: {<<: {max_attempts: 2}}\n", `c.yaml:2:8: loop: a key must be a word, got "<<"`},
		"list key":           {ok + "? [a]\n: 1\n", "a key must be a word, got a list"},
		"section no mapping": {ok + "loop: fast\n", `c.yaml:2:7: loop: want a mapping with keys, got "fast"`},
		"out of range":       {ok + "loop: {max_attempts: 0}\n", "c.yaml:2:22: loop.max_attempts: want 1…100, got 0"},
		"fraction":           {ok + "loop: {max_attempts: 2.5}\n", `loop.max_attempts: want a whole number, got "2.5"`},
		"duration":           {ok + "loop: {sample_timeout: soon}\n", `want a duration such as 120s, got "soon"`},
		"short duration":     {ok + "loop: {sample_timeout: 10ms}\n", "want 1s…604800s, got 10ms"},
		"size":               {ok + "loop: {max_bytes: 5}\n", "want at least 1MiB, got 5"},
		"choice":             {ok + "pool: {isolation: docker}\n", `want one of process, inline, got "docker"`},
		"null":               {ok + "loop: {max_attempts: }\n", "want a whole number, got nothing"},
		"list for text":      {ok + "server: {listen: [a]}\n", "want text, got a list"},
		"run weight":         {ok + "loop: {run_weights: {a: -1}}\n", "loop.run_weights.a: a weight must be positive"},
		"containment":        {ok + "loop: {message_bytes: 2GiB}\n", "loop.message_bytes: want at most 1GiB, which is loop.max_bytes"},
		"contained":          {ok + "loop: {max_bytes: 64MiB, credit_bytes: 1MiB}\n", "c.yaml:2:19: loop.max_bytes: want at least 128MiB, which is loop.message_bytes"},
		"longest deadline":   {ok + "loop: {max_sample_timeout: 10m}\n", "loop.max_sample_timeout: want at least 900s, which is loop.sample_timeout"},
		"shortest claim":     {ok + "loop: {claim_timeout: 1m}\n", "loop.claim_timeout: want at least 120s, which is loop.component_timeout"},
		"trainer":            {ok + "trainer: {nnodes: 1}\n", "trainer: belongs to the trainer"},
		"legacy":             {ok + "custom_reward_function: {path: a.py}\n", "custom_reward_function: has moved: write reward.custom_reward_function"},
		"legacy below":       {"reward: {reward_kwargs: {a: 1}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.reward_kwargs.a: has moved: write reward.custom_reward_function.reward_kwargs.a"},
		"defaults list":      {"reward: {defaults: [a], custom_reward_function: {path: \"builtin://a\"}}\n", "paste the output of"},

		"no path":          {"reward: {reward_functions: {a: {weight: 1}}}\n", "reward.reward_functions.a: has no path: write builtin://"},
		"entry no mapping": {"reward: {reward_functions: {a: builtin://a}}\n", "reward.reward_functions.a: want a mapping with keys"},
		"bad key":          {"reward: {reward_functions: {a/b: {path: \"builtin://a\"}}}\n", `"a/b" cannot name a reward`},
		"bare path":        {"reward: {reward_functions: {a: {path: ocr}}}\n", "want builtin:// before the name of a built-in scorer: builtin://ocr"},
		"no scorer":        {"reward: {reward_functions: {a: {path: \"builtin://\"}}}\n", "want builtin:// and the name of a scorer"},
		"http":             {"reward: {reward_functions: {a: {path: \"http:///x\"}}}\n", "want an address such as http://127.0.0.1:18082"},
		"http function":    {"reward: {reward_functions: {a: {path: \"http://u:secret@a:1\", name: f}}}\n", ": http://a:1 holds no function; leave name out"},
		"http itself":      {"reward: {reward_functions: {a: {path: \"builtin://http\"}}}\n", "write the address itself"},
		"no file":          {"reward: {reward_functions: {a: {path: mine/reward.py}}}\n", "config/mine/reward.py; a relative path starts at the folder of this file"},
		"folder":           {"reward: {reward_functions: {a: {path: testdata}}}\n", "want builtin:// before"},
		"no python":        {"reward: {reward_functions: {a: {path: mine/reward}}}\n", "want a Python file, whose name ends in .py"},
		"no python file":   {"reward: {reward_functions: {a: {path: \"file:///etc/passwd\"}}}\n", "want a Python file, whose name ends in .py"},
		"no module":        {"reward: {reward_functions: {a: {path: \"pkg://a b\"}}}\n", "want pkg:// and the name of a module"},
		"ourselves":        {"reward: {reward_functions: {a: {path: \"pkg://rewardloop.verl\"}}}\n", "a trainer sends samples to this server, so the server would call itself"},
		"python itself":    {"reward: {reward_functions: {a: {path: \"builtin://python\"}}}\n", "write the Python file itself"},
		"python function":  {"reward: {reward_functions: {a: {path: pkg://a, name: a.b}}}\n", `"a.b" cannot name a Python function`},
		"python pixels":    {"reward: {reward_functions: {a: {path: pkg://a, pixels: jax}}}\n", "want one of auto, numpy, torch"},
		"python kinds":     {"reward: {reward_functions: {a: {path: pkg://a, extra_keys: {acc: float}}}}\n", "extra_keys.acc: want one of number, bool, string"},
		"kinds of one":     {"reward: {custom_reward_function: {path: pkg://a, extra_keys: {acc: int}}}\n", "custom_reward_function.extra_keys.acc: want one of"},
		"scheme":           {"reward: {reward_functions: {a: {path: \"s3://x\"}}}\n", "no such kind of path"},
		"function name":    {"reward: {reward_functions: {a: {path: \"builtin://ocr\", name: main}}}\n", `builtin://ocr holds no function "main"`},
		"policy":           {"reward: {reward_functions: {a: {path: \"builtin://a\", on_failure: mean}}}\n", `policy "mean": want one of`},
		"sample policy":    {"reward: {on_sample_failure: fail, reward_functions: {a: {path: \"builtin://a\"}}}\n", `reward.on_sample_failure: policy "fail"`},
		"required policy":  {"reward: {reward_functions: {a: {path: \"builtin://a\", required: true, on_failure: zero}}}\n", "has no effect with required: true"},
		"required number":  {"reward: {reward_functions: {a: {path: \"builtin://a\", required: 1}}}\n", "want true or false"},
		"weights":          {"reward: {reward_functions: {a: {path: \"builtin://a\", weight: -1}}}\n", "reward.reward_functions: the weights sum to -1; weighted_sum needs a positive sum"},
		"aggregation":      {"reward: {aggregation: median, reward_functions: {a: {path: \"builtin://a\"}}}\n", "want one of weighted_sum, weighted_mean, min, max, product"},
		"invalid values":   {"reward: {reward_functions: {a: {path: \"builtin://a\", invalid_values: [.nan]}}}\n", "invalid_values[0]: want a finite number"},
		"extra keys":       {"reward: {reward_functions: {a: {path: \"builtin://a\", extra_keys: [b]}}}\n", "extra_keys: is for Python functions"},
		"infinite option":  {"reward: {reward_functions: {a: {path: \"builtin://a\", x: .inf}}}\n", "reward.reward_functions.a.x: want a finite number"},
		"long component":   {"reward: {reward_functions: {a: {path: \"builtin://a\", timeout: 1000}}}\n", "want at most 600s, which is loop.claim_timeout"},
		"both kinds":       {"reward: {custom_reward_function: {path: \"builtin://a\"}, reward_functions: {a: {path: \"builtin://a\"}}}\n", "are both given; keep one"},
		"kwargs alone":     {"reward: {custom_reward_function: {reward_kwargs: {a: 1}}}\n", "custom_reward_function has no path"},
		"manager":          {"reward: {reward_manager: {name: prime}, custom_reward_function: {path: \"builtin://a\"}}\n", `the reward manager "prime" is not built in; leave reward_manager out`},
		"dapo of many":     {"reward: {reward_manager: {name: dapo}, reward_functions: {a: {path: \"builtin://a\"}}}\n", "dapo scores one function"},
		"no dapo":          {"reward: {reward_kwargs: {max_resp_len: 9, overlong_buffer_cfg: {enable: true, len: 3}}, custom_reward_function: {path: \"builtin://a\"}}\n", "write reward_manager.name=dapo"},
		"dapo limit":       {"reward: {reward_manager: {name: dapo}, reward_kwargs: {overlong_buffer_cfg: {enable: true, len: 3}}, custom_reward_function: {path: \"builtin://a\"}}\n", "has no max_resp_len"},
		"dapo length":      {"reward: {reward_manager: {name: dapo}, reward_kwargs: {max_resp_len: 9, overlong_buffer_cfg: {enable: true, len: 12}}, custom_reward_function: {path: \"builtin://a\"}}\n", "want a length (len) from 1 to max_resp_len (9) tokens, got 12"},
		"dapo key":         {"reward: {reward_manager: {name: dapo}, reward_kwargs: {overlong_buffer_cfg: {length: 3}}, custom_reward_function: {path: \"builtin://a\"}}\n", "overlong_buffer_cfg.length: no such key"},
		"manager of one":   {"reward: {reward_manager: {name: naive}, reward_functions: {a: {path: \"builtin://a\"}}}\n", "naive scores one function"},
		"manager of many":  {"reward: {reward_manager: {name: MultiVisualRewardManager}, custom_reward_function: {path: \"builtin://a\"}}\n", "MultiVisualRewardManager needs reward.reward_functions"},
		"manager module":   {"reward: {reward_manager: {module: {path: pkg://mine}}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.reward_manager.module.path: custom reward managers are not supported"},
		"sandbox":          {"reward: {sandbox_fusion: {url: \"ftp://a\"}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.sandbox_fusion.url: want an address such as http://127.0.0.1:8080/run_code"},
		"route":            {"reward: {reward_fn_key: prompt, custom_reward_function: {path: \"builtin://a\"}}\n", "want data_source or extra_info.<name>, got \"prompt\""},
		"when":             {"reward: {reward_functions: {a: {path: \"builtin://a\", when: []}}}\n", "when: want the values of reward_fn_key"},
		"clip":             {"reward: {reward_functions: {a: {path: \"builtin://a\", clip: [2, 1]}}}\n", "clip: want the least and the largest value"},
		"scale":            {"reward: {reward_functions: {a: {path: \"builtin://a\", scale: 0}}}\n", "scale: want a number other than 0: with 0 all samples get the same score"},
		"members":          {"reward: {reward_functions: {a: {path: \"builtin://a\", min_members: 0}}}\n", "min_members: want 1…65536, got 0"},
		"post process":     {"reward: {reward_functions: {a: {path: \"builtin://a\"}, b: {post_process: c}}}\n", "reward.reward_functions.b.post_process: there is no component \"c\""},
		"post of what":     {"reward: {reward_functions: {a: {path: \"builtin://a\"}, b: {post_process: a}}}\n", "the component \"a\" is not a Python class"},
		"post with path":   {"reward: {reward_functions: {a: {path: pkg://a}, b: {post_process: a, path: pkg://a}}}\n", "needs no path"},
		"post with option": {"reward: {reward_functions: {a: {path: pkg://a}, b: {post_process: a, name: x}}}\n", "has no effect with post_process"},
		"verify kind":      {"reward: {verify: {v: {}}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.verify.v: has no kind: write http, sandbox_fusion, command"},
		"verify timeout":   {"reward: {verify: {v: {kind: http, timeout: 2h}}, custom_reward_function: {path: \"builtin://a\"}}\n", "want at most 600s, which is loop.claim_timeout"},
		"no engine":        {"reward: {reward_model: {enable: true, model_path: m}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.reward_model: is enabled and names no engine"},
		"no model":         {"reward: {reward_model: {enable: true, rollout: {name: external, base_urls: \"http://a:1\"}}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.reward_model: is enabled and has no model_path"},
		"engine size":      {"reward: {reward_model: {enable: true, enable_resource_pool: true, nnodes: 1, n_gpus_per_node: 1, model_path: m, rollout: {name: vllm}}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.reward_model.enable_resource_pool: the resource pool has too few cards for an engine: one engine needs 2 cards (tensor 2 × pipeline 1 × data 1), but the pool has 1"},
		"engine started":   {"reward: {reward_model: {enable: true, model_path: m, rollout: {name: sglang, base_urls: \"http://a:1\"}}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.reward_model.rollout.base_urls: cannot be combined with name: sglang, which starts the engine in this process"},
		"engine argument":  {"reward: {reward_model: {enable: true, model_path: m, rollout: {name: vllm, mtp: {enable: true}}}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.reward_model.rollout.mtp: is not passed to engines that rewardloop starts; write the argument under engine_kwargs.vllm"},
		"engine port":      {"reward: {reward_model: {enable: true, model_path: m, rollout: {name: vllm, engine_kwargs: {vllm: {port: 3}}}}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.reward_model.rollout.engine_kwargs: --port is set by rewardloop"},
		"engine executor":  {"reward: {models: {m: {backend: native, executor: {model: a.b:C}}}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.models.m.backend: rewardloop does not run verl-omni's executors"},
		"engine unknown":   {"reward: {models: {m: {backend: engine, model_path: x, rollout: {name: vllm}}}, reward_functions: {f: {path: \"builtin://a\", weight: 1, model: n}}}\n", `reward.reward_functions.f.model: names the model "n", and reward.models has m`},
		"engine kind":      {"reward: {reward_model: {enable: true, model_path: m, rollout: {name: trt}}, custom_reward_function: {path: \"builtin://a\"}}\n", "want one of external, onnx, vllm, sglang, transformers"},
		"engine address":   {ok + "engines: {judge: {model: m, base_urls: [\"a:1\", \"http://b:1\"]}}\n", "engines.judge.base_urls[0]: want an address such as http://127.0.0.1:8000"},
		"engine urls":      {ok + "engines: {judge: {model: m}}\n", "engines.judge: has no base_urls"},
		"engine model":     {ok + "engines: {judge: {base_urls: \"http://b:1\"}}\n", "engines.judge: has no model"},
		"engine setting":   {ok + "engines: {judge: {model: m, base_urls: \"http://b:1\", rpm: 3}}\n", "engines.judge.rpm: no such key"},
		"engine price":     {ok + "engines: {judge: {model: m, base_urls: \"http://b:1\", prompt_price: -1}}\n", "engines.judge.prompt_price: want 0 or more, got -1"},
		"engine name":      {ok + "engines: {reward_model: {model: m, base_urls: \"http://b:1\"}}\n", "cannot name an engine"},
		"engine key":       {"reward: {reward_model: {rollout: {tensor_parallel: 2}}, custom_reward_function: {path: \"builtin://a\"}}\n", "reward.reward_model.rollout.tensor_parallel: no such key"},
		"sandbox memory":   {"reward: {sandbox_fusion: {memory_limit_mb: lots}, custom_reward_function: {path: \"builtin://a\"}}\n", "memory_limit_mb: want a whole number"},
		"by data source":   {"reward: {compute_score_kwargs: {method: flexible}}\n", "verl's choice of a function by data_source is not built in"},

		"named default": {"rewards: {default: {custom_reward_function: {path: \"builtin://a\"}}}\n", "the reward named default is the section reward"},
		"named path":    {"rewards: {a/b: {custom_reward_function: {path: \"builtin://a\"}}}\n", `"a/b" cannot name a reward`},
		"named empty":   {ok + "rewards: {a: {}}\n", "rewards.a: names no scorer"},
		"named workers": {"rewards: {a: {num_workers: 2, custom_reward_function: {path: \"builtin://a\"}}}\n", "write reward.num_workers"},

		"variable":      {ok + "server: {token_file: \"${oc.env:NOPE}\"}\n", "server.token_file: the environment variable NOPE is not set; write ${oc.env:NOPE,default}"},
		"interpolation": {ok + "server: {token_file: \"${oc.select:a}\"}\n", "only ${oc.env:NAME} and ${oc.env:NAME,default} are resolved"},
		"open brace":    {ok + "server: {token_file: \"${oc.env:A\"}\n", "has no closing brace"},

		"port":      {ok + "server: {listen: \"127.0.0.1:http\"}\n", `want a port of 0…65535, got "http"`},
		"address":   {ok + "server: {listen: 127.0.0.1}\n", "want an address and a port such as 127.0.0.1:8080"},
		"tls":       {ok + "server: {tls_key: a}\n", "server.tls_key: needs server.tls_cert too"},
		"client ca": {ok + "server: {client_ca: a}\n", "server.client_ca: needs server.tls_cert"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := faults(t, c.text)
			assert.Len(t, lines, 1, "%v", lines)
			assert.Contains(t, lines[0], c.want)
			assert.Contains(t, lines[0], "c.yaml")
		})
	}
}

func TestAPublicAddressNeedsAToken(t *testing.T) {
	t.Parallel()
	for listen, public := range map[string]bool{
		"127.0.0.1:1": false, "127.8.9.1:1": false, "localhost:1": false, "[::1]:1": false,
		":8080": true, "0.0.0.0:1": true, "[::]:1": true, "10.0.0.1:1": true, "gpu-7:1": true, "[::ffff:127.0.0.1]:1": false,
	} {
		text := minimal + fmt.Sprintf("server: {listen: %q}\n", listen)
		if !public {
			assert.Empty(t, parse(t, text).Server.TokenFile, listen)
			continue
		}
		assert.Contains(t, faults(t, text)[0], listen+" can be reached from other machines: write server.token_file", listen)
		c := parse(t, text, "server.token_file=/t")
		assert.Contains(t, notes(c), "server.listen: without server.tls_cert the token crosses the network unencrypted")
		c = parse(t, text, "server.token_file=/t", "server.tls_cert=/c", "server.tls_key=/k")
		assert.NotContains(t, notes(c), "in clear")
	}
}

func notes(c *config.Config) string {
	var b strings.Builder
	for _, n := range c.Notes() {
		b.WriteString(n.String() + "\n")
	}
	return b.String()
}

func TestSizesAndDurationsAreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"64MiB": 64 << 20, "64 MiB": 64 << 20, "1.5GiB": 3 << 29, "500MB": 500e6, "1048577": 1048577, "2KiB": 2048, "3TB": 3e12,
	} {
		c := parse(t, minimal, "loop.results_bytes="+in)
		assert.Equal(t, want, c.Loop.KeepBytes, in)
	}
	for in, want := range map[string]time.Duration{
		"120s": 2 * time.Minute, "120": 2 * time.Minute, "120.5": 120500 * time.Millisecond, "2m30s": 150 * time.Second, "0": 0,
	} {
		assert.Equal(t, want, parse(t, minimal, "loop.drain_timeout="+in).Loop.DrainTimeout, in)
	}
	for _, in := range []string{"-1MiB", "1e400", "0x10", "NaN", "inf", "1PiB", "MiB", "9999999TiB"} {
		assert.Len(t, faults(t, minimal, "loop.results_bytes="+in), 1, in)
	}
	for _, in := range []string{"-1s", "NaN", "1e300", "8d", "999h"} {
		assert.Len(t, faults(t, minimal, "loop.drain_timeout="+in), 1, in)
	}
}
