package config_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
)

// script makes an empty Python file and returns its path.
func script(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	return path
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestAPythonFunctionIsReadWithItsArguments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := script(t, dir, "my_reward.py")
	c, err := config.Load(write(t, filepath.Join(dir, "cfg.yaml"), `reward:
  reward_functions:
    answer:
      path: my_reward.py
      name: judge
      extra_keys: {acc: bool, words: number, lang: string}
      pixels: torch
      bonus: 0.5
      api_key: ${oc.env:KEY}
    plain: {path: "pkg://verl/utils/reward_score"}
rewards:
  one:
    custom_reward_function:
      path: pkg://mine
      extra_keys: {}
      timeout: 9s
      reward_kwargs: {extra_keys: mine, pixels: 3}
`), nil, env("KEY", "k-1"))
	require.NoError(t, err)
	answer, plain := c.Profiles["default"].Components[0], c.Profiles["default"].Components[1]
	assert.Equal(t, []string{file, "python", "judge", "torch"}, []string{answer.Path, answer.Scorer, answer.Function, answer.Pixels})
	assert.Equal(t, map[string]rewards.FieldKind{"acc": rewards.Bool, "words": rewards.Number, "lang": rewards.String}, answer.ExtraKeys)
	assert.JSONEq(t, `{"bonus": 0.5, "api_key": "k-1"}`, string(answer.Options))
	assert.Equal(t, []string{"pkg://verl/utils/reward_score", "compute_score", "auto"}, []string{plain.Path, plain.Function, plain.Pixels})
	assert.Nil(t, plain.ExtraKeys)
	assert.Nil(t, plain.Options)

	one := c.Profiles["one"].Components[0]
	assert.True(t, one.Required)
	assert.Equal(t, map[string]rewards.FieldKind{}, one.ExtraKeys, "declared, and none")
	assert.JSONEq(t, `{"extra_keys": "mine", "pixels": 3}`, string(one.Options), "what stands below reward_kwargs is the function's own")
	assert.NotContains(t, printed(t, c), "k-1")
}

func TestARelativePathStartsWhereItWasWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := script(t, dir, "rewards", "mine.py")
	cfg := write(t, filepath.Join(dir, "cfg.yaml"), "reward: {custom_reward_function: {path: rewards/mine.py}}\n")
	for name, overrides := range map[string][]string{
		"in the file":     nil,
		"an absolute one": {"reward.custom_reward_function.path=" + file},
		"a file address":  {"reward.custom_reward_function.path=file://" + file},
	} {
		c, err := config.Load(cfg, overrides, nil)
		require.NoError(t, err, name)
		assert.Equal(t, file, c.Profiles["default"].Components[0].Path, name)
	}
	here, err := filepath.Abs("rewards/mine.py")
	require.NoError(t, err)
	_, err = config.Load(cfg, []string{"reward.custom_reward_function.path=rewards/mine.py"}, nil)
	require.ErrorContains(t, err, "there is no file "+here+"; a relative path in an override starts at the working directory")
}

func TestAFileInTheWorkingDirectoryIsPointedOut(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	require.NoError(t, err)
	script(t, "mine.py")
	cfg := write(t, filepath.Join(t.TempDir(), "cfg.yaml"), "reward:\n  custom_reward_function:\n    path: mine.py\n")
	_, err = config.Load(cfg, nil, nil)
	require.ErrorContains(t, err, cfg+":3:11: reward.custom_reward_function.path: there is no file "+filepath.Join(filepath.Dir(cfg), "mine.py")+
		"; a relative path starts at the folder of this file; there is "+filepath.Join(here, "mine.py"))
	c, err := config.Load("", []string{"reward.custom_reward_function.path=mine.py"}, nil)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(here, "mine.py"), c.Profiles["default"].Components[0].Path)
}

func TestAFunctionThatIsBuiltInAsWellIsNoted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	theirs := script(t, dir, "verl_omni", "utils", "reward_score", "jpeg_compressibility.py")
	c := parse(t, "reward: {reward_functions: {a: {path: pkg://verl_omni.utils.reward_score.genrm_ocr}, b: {path: "+theirs+
		"}, c: {path: pkg://mine.genrm_ocr}}}\n")
	assert.Contains(t, notes(c), "c.yaml:1:39: reward.reward_functions.a.path: builtin://genrm_ocr does what genrm_ocr does, without Python")
	assert.Contains(t, notes(c), "reward.reward_functions.b.path: builtin://jpeg_compressibility does what")
	assert.NotContains(t, notes(c), "reward_functions.c.path", "a module of the same name is somebody else's")
}

func TestWhatIsPrintedOfPythonMeansTheSameElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script(t, dir, "mine.py")
	c, err := config.Load(write(t, filepath.Join(dir, "cfg.yaml"), `
reward: {reward_functions: {a: {path: mine.py, name: f, extra_keys: {x: number}, concurrency: 4, memory: 1GiB, env: [], greeting: hello}}}
rewards: {b: {custom_reward_function: {path: mine.py, pixels: numpy, extra_keys: {}, reward_kwargs: {k: [1, "2"]}}}}
pool: {python: {interpreter: /opt/python, processes: 3, memory: 2GiB, stall_timeout: 5s}}
`), nil, nil)
	require.NoError(t, err)
	again, err := config.Parse(filepath.Join(t.TempDir(), "elsewhere.yaml"), []byte(printed(t, c)), nil, nil)
	require.NoError(t, err, printed(t, c))
	assert.Equal(t, printed(t, c), printed(t, again))
	assert.Equal(t, c.Pool, again.Pool)
	for name, p := range c.Profiles {
		component, other := p.Components[0], again.Profiles[name].Components[0]
		component.Place = other.Place
		assert.EqualExportedValues(t, component, other)
	}
}

// The scorer is built from what the entry says, in the form of its own options.
func TestAPythonScorerIsBuiltFromItsEntry(t *testing.T) {
	t.Parallel()
	var got []string
	var reg rewards.Registry
	reg.Register(rewards.Spec{Name: config.PythonScorer, Build: func(raw json.RawMessage) (rewards.Scorer, error) {
		got = append(got, string(raw))
		return closable{new(int), 1}, nil
	}})
	c := parse(t, "reward: {reward_functions: {a: {path: pkg://m, name: f, extra_keys: {}, k: 1}, b: {path: pkg://m}}}\n")
	managers, err := config.BuildManagers(c, &reg)
	require.NoError(t, err)
	require.NoError(t, managers["default"].Close())
	require.Len(t, got, 2)
	assert.JSONEq(t, `{"path": "pkg://m", "name": "f", "pixels": "auto", "extra_keys": {}, "kwargs": {"k": 1}}`, got[0])
	assert.JSONEq(t, `{"path": "pkg://m", "name": "compute_score", "pixels": "auto"}`, got[1])
}

func TestTheKnownSamplesOfAFunctionAreChosen(t *testing.T) {
	t.Parallel()
	for written, want := range map[string][]string{"true": nil, "false": {}, "video": {"video"}, "[image, text]": {"image", "text"}, "[]": {}} {
		c := parse(t, "reward: {reward_functions: {a: {path: pkg://m, probe: "+written+"}}}\n")
		require.Equal(t, want, c.Profiles["default"].Components[0].Probe, written)
		again, err := config.Parse("again.yaml", []byte(printed(t, c)), nil, nil)
		require.NoError(t, err)
		require.Equal(t, want, again.Profiles["default"].Components[0].Probe, written)
	}
	_, err := config.Parse("c.yaml", []byte("reward: {reward_functions: {a: {path: pkg://m, probe: [sound]}, b: {path: builtin://x, probe: false}}}\n"), nil, nil)
	require.ErrorContains(t, err, `c.yaml:1:56: reward.reward_functions.a.probe[0]: want true, false or a list of image, video, text, got "sound"`)
	require.ErrorContains(t, err, "reward.reward_functions.b.probe: is for Python functions; leave it out")
}

// What a function of **kwargs may take is refused only where it is surely a slip.
func TestNamesThatResembleAKeyAreToldFromMisspeltOnes(t *testing.T) {
	t.Parallel()
	var reg rewards.Registry
	reg.Register(rewards.Spec{
		Name: config.PythonScorer, Build: func(json.RawMessage) (rewards.Scorer, error) { return closable{new(int), 1}, nil },
		Inspect: func(context.Context, json.RawMessage, bool) (rewards.Signature, error) {
			return rewards.Signature{Names: []string{"solution_str", "threshold_a", "tiemout"}, Any: true}, nil
		},
	})
	for name, meant := range map[string]string{
		"wieght": "weight", "weigth": "weight", "weigh": "weight", "weights": "weight", "requierd": "required", "timout": "timeout", "on_failrue": "on_failure",
		"invald_value": "invalid_values", "ewight": "weight", "treshold_a": "threshold_a",
		"height": "", "end": "", "freight": "", "threshold_b": "", "threshold_ab": "", "tiemout": "", "model": "", "temperature": "", "language": "",
	} {
		c, err := config.Parse("c.yaml", []byte("reward: {reward_functions: {a: {path: pkg://m, "+name+": 1}}}\n"), nil, nil)
		require.NoError(t, err)
		err = config.Check(t.Context(), c, nil, &reg, true)
		if meant == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, "c.yaml:1:48: reward.reward_functions.a."+name+": did you mean "+meant+"?", name)
		}
	}
}
