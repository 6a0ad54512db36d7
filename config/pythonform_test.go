package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
)

// groupFile is a folder with a class of groups, a class of single samples and functions of trainers.
func groupFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hps.py"), []byte(`class Pairs:
    def score_group(self, samples):
        return [0.0 for _ in samples]

class Grader:
    def compute_score(self, solution_str, reference=""):
        return 0.0

def score_group(samples):
    return [0.0 for _ in samples]

def reward(completions, **kwargs):
    return [0.0 for _ in completions]

def compute_score(solution_str, reference=""):
    return 0.0
`), 0o600))
	return dir
}

func TestTheFormOfAFunctionIsItsSignatureOrItsName(t *testing.T) {
	t.Parallel()
	dir := groupFile(t)
	for rest, want := range map[string][]any{
		"name: Pairs": {"score_group", true},
		"name: score_group, reference: extra_info.y.0.content":       {"score_group", true},
		"name: reward, signature: trl":                               {"trl", true},
		"name: reward, signature: trl, devices: cpu":                 {"trl", true},
		"name: reward, signature: trl, batch: true":                  {"trl", false},
		"name: reward, signature: ms_swift, reference: ground_truth": {"ms_swift", true},
		"name: Grader":                     {"", false},
		"name: Grader, reference: nothing": {"", false},
	} {
		c, err := loadModel(t, dir, rest)
		require.NoError(t, err, rest)
		entry := c.Profiles[config.DefaultProfile].Components[0]
		assert.Equal(t, want, []any{entry.Signature, config.Grouped(entry)}, rest)
		if rest == "name: Grader, reference: nothing" {
			assert.JSONEq(t, `{"reference": "nothing"}`, string(entry.Options), "a parameter of the function")
		}
		shown := printed(t, c)
		again, err := config.Load(write(t, filepath.Join(dir, "printed.yaml"), shown), nil, nil)
		require.NoError(t, err, shown)
		other := again.Profiles[config.DefaultProfile].Components[0]
		assert.Equal(t, []any{entry.Signature, entry.Reference, entry.Placement}, []any{other.Signature, other.Reference, other.Placement}, "what is printed means the same")
	}
}

func TestFaultsOfAFormAreToldWithTheirLines(t *testing.T) {
	t.Parallel()
	dir := groupFile(t)
	for rest, want := range map[string]string{
		"name: reward, signature: TRL":                                       `c.yaml:1:74: reward.reward_functions.hps.signature: want one of score_group, rm_gallery, openjudge, trl, slime, ms_swift, openrlhf, ddpo, got "TRL"`,
		"name: Pairs, reference: prompt":                                     `reference: is not a path: want ground_truth, ground_truth.<path> or extra_info.<path>, got "prompt"`,
		"name: Pairs, batch: true":                                           "batch: calls the function with single samples in batches, but score_group needs whole prompt groups; leave batch out",
		"name: reward, signature: rm_gallery, batch: true":                   "batch: calls the function with single samples in batches, but rm_gallery needs",
		"name: Pairs, devices: cpu, max_batch_size: 4":                       "max_batch_size: has no effect: a function of whole prompt groups is called with one group at a time",
		"name: Pairs, probe: text":                                           "probe: has no effect: a function of whole prompt groups is not called with known samples",
		"name: reward, signature: trl, batch: true, reference: ground_truth": "reference: is for functions of whole prompt groups, but batch: true calls the function with single samples in batches",
		"name: Pairs, steps: true":                                           "steps: python returns one score for the whole response",
		"name: Pairs}, other: {post_process: hps":                            `post_process: the component "hps" scores whole groups itself`,
	} {
		_, err := loadModel(t, dir, rest)
		require.Error(t, err, rest)
		require.ErrorContains(t, err, want, rest)
	}
	for section, want := range map[string]string{
		`{path: "builtin://gsm8k", signature: trl}`: "signature: is for Python functions; leave it out",
		`{path: hps.py, reference: ground_truth}`:   "reference: is for functions of whole prompt groups, whose class has score_group or whose entry has a signature",
	} {
		file := filepath.Join(dir, "c.yaml")
		require.NoError(t, os.WriteFile(file, []byte("reward: {custom_reward_function: "+section+"}\n"), 0o600))
		_, err := config.Load(file, nil, nil)
		require.ErrorContains(t, err, want)
	}
}

func TestASingleFunctionMayScoreGroups(t *testing.T) {
	t.Parallel()
	dir := groupFile(t)
	file := filepath.Join(dir, "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("reward: {custom_reward_function: {path: hps.py, name: Pairs, reference: ground_truth}}\n"), 0o600))
	c, err := config.Load(file, nil, nil)
	require.NoError(t, err)
	entry := c.Profiles[config.DefaultProfile].Components[0]
	assert.Equal(t, []any{"score_group", "ground_truth", true}, []any{entry.Signature, entry.Reference, config.Grouped(entry)})
	assert.Empty(t, c.Notes())
}
