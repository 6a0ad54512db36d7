package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/rewards"
)

// environmentOf loads a function with an environment, from a folder that has requirements.txt.
func environmentOf(t *testing.T, dir, environment, beside string, getenv func(string) (string, bool)) (*config.Config, error) {
	t.Helper()
	script(t, dir, "mine.py")
	write(t, filepath.Join(dir, "requirements.txt"), "numpy==1.26.4\n")
	return config.Load(write(t, filepath.Join(dir, "c.yaml"), "reward:\n  reward_functions:\n    a:\n      path: mine.py\n      environment: "+environment+"\n"+beside), nil, getenv)
}

func TestAnEnvironmentIsReadFromAFileOrFromLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := environmentOf(t, dir, `{python: 3.10, requirements: requirements.txt, system_site_packages: true}`, "", nil)
	require.NoError(t, err, "whether it is made is no fault of the file")
	got := c.Profiles["default"].Components[0].Environment
	require.Equal(t, &pyenv.Spec{
		Python: "3.10", Requirements: "numpy==1.26.4\n", SystemSitePackages: true, Dir: dir, File: filepath.Join(dir, "requirements.txt"),
	}, got)
	require.Len(t, c.Environments(), 1)
	again, err := config.Load(write(t, filepath.Join(t.TempDir(), "printed.yaml"), printed(t, c)), nil, nil)
	require.NoError(t, err, printed(t, c))
	require.Equal(t, got, again.Profiles["default"].Components[0].Environment, "what is printed means the same elsewhere")

	lines, err := environmentOf(t, dir, `{python: "3.10", requirements: ["numpy==1.26.4"], system_site_packages: true}`, "", nil)
	require.NoError(t, err)
	assert.True(t, got.Equal(*lines.Profiles["default"].Components[0].Environment), "the same content is the same environment")
	again, err = config.Parse("again.yaml", []byte(printed(t, lines)), nil, nil)
	require.NoError(t, err, printed(t, lines))
	assert.True(t, got.Equal(*again.Profiles["default"].Components[0].Environment))
	require.Empty(t, c.Compare(c).Restart)
	other, err := environmentOf(t, dir, `{python: "3.11", requirements: requirements.txt}`, "", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"reward.reward_functions.a"}, c.Compare(other).Restart)
}

func TestFaultsOfAnEnvironmentAreToldWithTheirLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for environment, want := range map[string]string{
		"{requirements: none.txt}":           "c.yaml:5:35: reward.reward_functions.a.environment.requirements: the requirements " + filepath.Join(dir, "none.txt") + " cannot be read: no such file",
		"{python: \"2.7\"}":                  `c.yaml:5:20: reward.reward_functions.a.environment: python "2.7": want a version such as "3.11"`,
		"{python: envs/none}":                "c.yaml:5:29: reward.reward_functions.a.environment.python: no program " + filepath.Join(dir, "envs/none"),
		"{requirement: x}":                   "environment.requirement: no such key; did you mean requirements?",
		"{system_site_packages: 3}":          "environment.system_site_packages: want true or false",
		"{requirements: [\"-e .\"]}":         "build a wheel and name the wheel",
		"{requirements: [\"a\\nb\"]}":        "want one line of a requirements file each",
		"[numpy]":                            "want a mapping with keys",
		"{}\n      interpreter: /bin/python": "interpreter: no program /bin/python",
		"{}\n      interpreter: python3":     "c.yaml:6:20: reward.reward_functions.a.interpreter: has no effect with environment",
	} {
		_, err := environmentOf(t, dir, environment, "", nil)
		require.ErrorContains(t, err, want, environment)
	}
	_, err := config.Parse("c.yaml", []byte("reward: {custom_reward_function: {path: \"builtin://gsm8k\", environment: {python: \"3.11\"}}}\n"), nil, nil)
	require.ErrorContains(t, err, "environment: is for Python functions; leave it out")
}

func TestAnEnvironmentThatIsNotMadeIsAFaultWithTheCommandThatMakesIt(t *testing.T) {
	t.Parallel()
	dir, envs := t.TempDir(), t.TempDir()
	getenv := env("REWARDLOOP_ENVS", envs)
	c, err := environmentOf(t, dir, "{requirements: requirements.txt}", "queue: {nats_listen: \"127.0.0.1:0\"}\n", getenv)
	require.NoError(t, err)
	err = config.Check(t.Context(), c, nil, new(rewards.Registry), true)
	file := filepath.Join(dir, "c.yaml")
	want := file + ":5:20: reward.reward_functions.a.environment: the environment is not made in " + envs + ": `rewardloop env make -c " + file + "` makes it"
	require.EqualError(t, err, want, "once, and nothing of another Python")

	_, err = config.BuildManagers(c, new(rewards.Registry))
	require.EqualError(t, err, want)
	c.NumWorkers = 0
	_, err = config.BuildManagers(c, new(rewards.Registry))
	require.NotContains(t, err.Error(), "environment", "a process that scores nothing needs none")
	c.NumWorkers, c.Queue.Rewards = 1, []string{"another"}
	_, err = config.BuildManagers(c, new(rewards.Registry))
	require.NotContains(t, err.Error(), "environment", "nor one that scores something else")

	over, err := config.Load(file, []string{"++reward.reward_functions.a.environment={python: \"3.11\"}"}, getenv)
	require.NoError(t, err)
	err = config.Check(t.Context(), over, nil, new(rewards.Registry), true)
	require.ErrorContains(t, err, "`rewardloop env make -c "+file+" '++reward.reward_functions.a.environment={python: \"3.11\"}'` makes it")
}

// built are the options from which the one scorer of a configuration is built.
func built(t *testing.T, c *config.Config) (options string) {
	t.Helper()
	var reg rewards.Registry
	reg.Register(rewards.Spec{Name: config.PythonScorer, Build: func(raw json.RawMessage) (rewards.Scorer, error) {
		options = string(raw)
		return closable{new(int), 1}, nil
	}})
	managers, err := config.BuildManagers(c, &reg)
	require.NoError(t, err)
	require.NoError(t, managers["default"].Close())
	return options
}

func TestTheScorerIsBuiltWithThePythonOfItsEnvironment(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || testing.Short() {
		t.Skip("SKIPPED: -short, or no Linux: it makes a Python environment")
	}
	dir, envs := t.TempDir(), t.TempDir()
	getenv := env("REWARDLOOP_ENVS", envs)
	empty := "{requirements: [\"# nothing\"]}"
	c, err := environmentOf(t, dir, empty, "", getenv)
	require.NoError(t, err)
	made, err := pyenv.Store{Dir: envs}.Make(t.Context(), *c.Profiles["default"].Components[0].Environment, pyenv.Options{})
	require.NoError(t, err)
	c, err = environmentOf(t, dir, empty, "", getenv)
	require.NoError(t, err)
	require.Contains(t, built(t, c), `"interpreter":"`+made.Interpreter+`"`)
	require.NotContains(t, printed(t, c), made.Interpreter, "what is printed is what was written")
	require.NoError(t, os.RemoveAll(made.Dir))
	c, err = environmentOf(t, dir, empty, "", getenv)
	require.NoError(t, err)
	require.ErrorContains(t, config.Check(t.Context(), c, nil, new(rewards.Registry), true), "is not made")
}
