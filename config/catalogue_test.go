package config_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/python/rewardloop/scorers"
	"github.com/rewardloop/rewardloop/rewards"
)

// entryOf loads a configuration of one entry of the catalogue, with more keys in its entry.
func entryOf(path, keys string, getenv func(string) (string, bool)) (*config.Config, error) {
	text := "reward:\n  reward_functions:\n    a: {path: \"" + path + "\"" + keys + "}\n"
	return config.Parse("c.yaml", []byte(text), nil, getenv)
}

func TestAnEntryOfTheCatalogueIsAModelInPythonWithItsOwnEnvironment(t *testing.T) {
	t.Parallel()
	getenv := env("REWARDLOOP_ENVS", t.TempDir())
	c, err := entryOf("scorer://hpsv3", `, devices: "cuda:0", checkpoint_path: /data/HPSv3.safetensors`, getenv)
	require.NoError(t, err)
	a := c.Profiles["default"].Components[0]
	assert.Equal(t, []string{"python", "Scorer", "pil"}, []string{a.Scorer, a.Function, a.Pixels})
	assert.JSONEq(t, `{"checkpoint_path": "/data/HPSv3.safetensors"}`, string(a.Options), "the adapter gets what stands beside the path")
	assert.Equal(t, map[string]rewards.FieldKind{"sigma": rewards.Number}, a.ExtraKeys)
	assert.Equal(t, []string{"cuda:0"}, a.Placement.Devices)
	assert.Equal(t, []string{"image"}, a.Probe)
	assert.Equal(t, scorers.Find("hpsv3").Requirements, c.Environments()["reward.reward_functions.a"].Requirements)
	err = config.Check(t.Context(), c, nil, new(rewards.Registry), true)
	require.ErrorContains(t, err, "c.yaml:3:15: reward.reward_functions.a.environment: the environment is not made in ")

	again, err := config.Parse("again.yaml", []byte(printed(t, c)), nil, getenv)
	require.NoError(t, err, printed(t, c))
	assert.Equal(t, a.Environment, again.Profiles["default"].Components[0].Environment)
	assert.Equal(t, a.ExtraKeys, again.Profiles["default"].Components[0].ExtraKeys)

	single, err := config.Parse("c.yaml", []byte(`reward: {custom_reward_function: {path: "scorer://pickscore", reward_kwargs: {divide: 1}}}`), nil, getenv)
	require.NoError(t, err)
	one := single.Profiles["default"].Components[0]
	assert.NotNil(t, one.Placement)
	assert.JSONEq(t, `{"divide": 1}`, string(one.Options))
	assert.Zero(t, one.AgentConcurrency)
}

func TestAnEntryTakesAnotherEnvironmentOrInterpreter(t *testing.T) {
	t.Parallel()
	c, err := entryOf("scorer://pickscore", `, environment: {python: "3.12", system_site_packages: true}`, nil)
	require.NoError(t, err)
	got := c.Environments()["reward.reward_functions.a"]
	assert.Equal(t, "3.12", got.Python)
	assert.True(t, got.SystemSitePackages)
	assert.Equal(t, scorers.Find("pickscore").Requirements, got.Requirements, "the packages are the entry's unless others are written")
	again, err := config.Parse("again.yaml", []byte(printed(t, c)), nil, nil)
	require.NoError(t, err, printed(t, c))
	assert.True(t, got.Equal(again.Environments()["reward.reward_functions.a"]))

	c, err = entryOf("scorer://pickscore", `, environment: {requirements: ["torch==2.9.0"]}`, nil)
	require.NoError(t, err)
	assert.Equal(t, "torch==2.9.0\n", c.Environments()["reward.reward_functions.a"].Requirements)

	c, err = entryOf("scorer://pickscore", `, interpreter: python3`, nil)
	require.NoError(t, err)
	assert.Empty(t, c.Environments())
	options := built(t, c)
	assert.Contains(t, options, `"interpreter":"python3"`)
	assert.Contains(t, options, `"path":"scorer://pickscore"`)
	assert.Contains(t, options, `class Scorer:`)
	assert.Contains(t, options, `"inputs":["image","prompt"]`)
}

func TestALicenceThatDoesNotAllowEveryUseIsRefusedByNameUntilItIsAgreedTo(t *testing.T) {
	t.Parallel()
	restricted := 0
	for _, e := range scorers.All() {
		keys := ", interpreter: python3"
		for _, o := range e.Options {
			if o.Default == "required" {
				keys += ", " + o.Name + ": /x"
			}
		}
		_, err := entryOf(e.Path(), keys, nil)
		if e.Accept == "" {
			require.NoError(t, err, e.Name)
			_, err = entryOf(e.Path(), keys+", accept_license: GPL-3.0-only", nil)
			require.ErrorContains(t, err, "accept_license: "+e.Path()+" needs no agreement")
			continue
		}
		restricted++
		require.ErrorContains(t, err, "c.yaml:3:15: reward.reward_functions.a.path: "+e.Path()+" is used under "+e.Accept+", which does not allow every use: code "+e.Code.Name)
		for _, w := range e.Weights {
			require.ErrorContains(t, err, "weights "+w.Name+", about ")
			require.ErrorContains(t, err, w.Licence.Name+" ("+w.URL+")")
		}
		require.ErrorContains(t, err, "if you agree add accept_license: "+e.Accept+" to the entry")
		_, err = entryOf(e.Path(), keys+", accept_license: MIT", nil)
		require.ErrorContains(t, err, `accept_license: want `+e.Accept+`, the licence of `+e.Path()+`, got "MIT"`)
		c, err := entryOf(e.Path(), keys+", accept_license: "+e.Accept, nil)
		require.NoError(t, err)
		require.Contains(t, printed(t, c), "accept_license: ")
		_, err = config.Parse("again.yaml", []byte(printed(t, c)), nil, nil)
		require.NoError(t, err, printed(t, c))
	}
	require.Positive(t, restricted)
	_, err := config.Parse("c.yaml", []byte(`reward: {custom_reward_function: {path: "builtin://gsm8k", accept_license: MIT}}`), nil, nil)
	require.ErrorContains(t, err, "accept_license: is for reward models of the catalogue (path: scorer://NAME); leave it out")
	_, err = config.Parse("c.yaml", []byte(`reward: {custom_reward_function: {path: "scorer://aesthetic_v2_5", interpreter: python3, accept_license: AGPL-3.0-only}}`), nil, nil)
	require.NoError(t, err)
}

func TestWhatAnEntryDownloadsIsSaidBeforeItIsDownloaded(t *testing.T) {
	t.Parallel()
	notes := func(keys string) string {
		c, err := entryOf("scorer://pickscore", ", interpreter: python3"+keys, nil)
		require.NoError(t, err)
		var all []string
		for _, n := range c.Notes() {
			if strings.Contains(n.Message, config.Fetches) {
				all = append(all, n.String())
			}
		}
		return strings.Join(all, "\n")
	}
	require.Contains(t, notes(""), "c.yaml:3:15: reward.reward_functions.a.path: downloads when it is loaded for the first time, unless its cache has it: "+
		"yuvalkirstain/PickScore_v1, about 3.9 GB, MIT (https://huggingface.co/yuvalkirstain/PickScore_v1); laion/CLIP-ViT-H-14-laion2B-s32B-b79K, about 4 MB, MIT (")
	folder := filepath.ToSlash(t.TempDir())
	require.Empty(t, notes(fmt.Sprintf(", model_path: %q, processor_path: %q", folder, folder)))
	require.Contains(t, notes(", model_path: somebody/else"), "somebody/else in place of yuvalkirstain/PickScore_v1, whose size and licence are not known here")
}

func TestFaultsOfAnEntryOfTheCatalogueSayWhatToDo(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"path: \"scorer://pikscore\"":                                             "c.yaml:1:39: reward.reward_functions.a.path: the catalogue has no \"pikscore\"; it has aesthetic_v2_5, clap, ",
		"path: \"scorer://\"":                                                     "the catalogue has no \"\"; it has aesthetic_v2_5, ",
		"path: \"scorer://clap\", name: compute_score":                            "name: scorer://clap holds no function; leave name out",
		"path: \"scorer://clap\", pixels: pil":                                    "pixels: has no effect: the catalogue sets this key for scorer://clap; leave it out",
		"path: \"scorer://clap\", extra_keys: {x: number}":                        "extra_keys: has no effect",
		"path: \"scorer://clap\", signature: trl":                                 "signature: has no effect",
		"path: \"scorer://clap\", batch: true":                                    "batch: the adapter of scorer://clap always takes batches; leave the key out",
		"path: \"scorer://clap\", interpreter: python3, environment: {python: x}": "interpreter: has no effect with environment",
	} {
		_, err := config.Parse("c.yaml", []byte("reward: {reward_functions: {a: {"+keys+"}}}"), nil, nil)
		require.ErrorContains(t, err, want, keys)
	}
	_, err := entryOf("scorer://pikscore", "", nil)
	require.ErrorContains(t, err, "videoalign, videopickscore; did you mean pickscore?")
	c, err := entryOf("scorer://videoalign", ", code_path: /x, model_path: /y", nil)
	require.NoError(t, err)
	require.Empty(t, c.Environments())
	err = config.Check(t.Context(), c, nil, new(rewards.Registry), true)
	require.ErrorContains(t, err, "`rewardloop env make` cannot make the environment of scorer://videoalign: run `git clone https://github.com/KwaiVGI/VideoAlign && ")
	require.ErrorContains(t, err, "add interpreter: with the path of its Python to the entry")
}
