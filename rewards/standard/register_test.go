package standard_test

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/preference"
	"github.com/rewardloop/rewardloop/rewards/remote"
	"github.com/rewardloop/rewardloop/rewards/standard"
	"github.com/rewardloop/rewardloop/rewards/vlm"
)

// needed are the options without which a scorer cannot be built.
var needed = map[string]string{
	"python":   `{"path": "pkg://mine", "extra_keys": {}}`,
	"regex":    `{"pattern": "x"}`,
	"overlong": `{"max_resp_len": 100, "overlong_buffer_len": 20}`,
	"judge":    `{"template": "{prompt}"}`,
	"rubric":   `{"rubrics": [{"name": "r", "text": "is it right?"}]}`,
	"http":     `{"url": "http://h:1", "protocol": "slime"}`,

	"sandbox_fusion": `{"url": "http://h:1"}`,

	"text_rm": `{"model": "tiny-textrm-bert"}`,
	"onnx":    `{"model": "tiny-graph"}`,

	"rank":   `{"of": "f1"}`,
	"zscore": `{"of": "f1"}`,
	"minmax": `{"of": "f1"}`,
}

// lacks is the option that a scorer without its needed ones names.
var lacks = map[string]string{"python": "path", "regex": "pattern", "overlong": "max_resp_len", "judge": "template", "rubric": "rubrics", "http": "protocol", "sandbox_fusion": "url", "text_rm": "model", "onnx": "model", "rank": "of", "zscore": "of", "minmax": "of"}

// blind is a reader that finds nothing.
type blind struct{}

func (blind) ReadText(context.Context, *rewards.Pixels, int) ([]ocr.Line, error) { return nil, nil }

var allBlind = ocr.ReadersFunc(func(ocr.ReaderOptions) (ocr.TextReader, error) { return blind{}, nil })

// silent is an engine that nobody is to ask.
type silent struct{}

func (silent) Chat(context.Context, *chat.Request) (*chat.Reply, error) {
	return nil, rewards.Unavailable
}

func (silent) Do(context.Context, *outbound.Call) (*outbound.Answer, error) {
	return nil, rewards.Unavailable
}

func (silent) Client(chat.Endpoint, chat.Request) (chat.Chatter, error) { return silent{}, nil }

func (silent) Engine(chat.Endpoint, func(string) outbound.Call) (outbound.Doer, string, error) {
	return silent{}, "m", nil
}

func (silent) Upstream([]string, remote.UpstreamOptions) (outbound.Doer, error) { return silent{}, nil }

// Net implements infer.Nets: models that nobody is to ask.
func (silent) Net(infer.Model) (infer.Net, error) { return silent{}, nil }

func (silent) Info(context.Context) (infer.Info, error) { return infer.Info{}, infer.ErrUnavailable }

func (silent) Infer(context.Context, infer.Request) ([]infer.Tensor, error) {
	return nil, infer.ErrUnavailable
}

// tiny is the folder of a tiny model in the place of one of the catalogue.
func tiny(model string) (string, error) {
	folders := map[string]string{
		preference.PickScoreModel: "tiny-clip", preference.CLIPModel: "tiny-clip", preference.HPSv2Model: "tiny-hpsv2",
		preference.AestheticModel: "tiny-aesthetic", preference.SigLIPModel: "tiny-siglip", vlm.DefaultModel: "tiny-idefics3",
	}
	return filepath.Join("..", "..", "testdata", "models", cmp.Or(folders[model], model)), nil
}

// everything is what the scorers need, none of it real.
func everything() standard.Deps {
	return standard.Deps{
		Readers: allBlind, Judges: judge.Deps{Clients: silent{}, Engines: silent{}}, Upstreams: silent{},
		Preference: preference.Deps{Nets: silent{}, Folder: tiny},
		VLM:        vlm.NewJudges(vlm.Deps{Nets: silent{}, Folder: tiny}),
	}
}

func registry(deps standard.Deps) *rewards.Registry {
	var reg rewards.Registry
	standard.Register(&reg, deps)
	return &reg
}

// made builds a scorer of either kind.
func made(s rewards.Spec, raw string) (any, error) {
	if s.Build == nil {
		return s.BuildGroup(json.RawMessage(raw))
	}
	return s.Build(json.RawMessage(raw))
}

// eachScorer runs a subtest with the description of every scorer that ships.
func eachScorer(t *testing.T, run func(t *testing.T, s rewards.Spec)) {
	t.Helper()
	reg := registry(everything())
	require.NotEmpty(t, reg.Names())
	for _, name := range reg.Names() {
		s, ok := reg.Spec(name)
		require.True(t, ok)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, s)
		})
	}
}

func TestEveryScorerThatMessagesSuggestIsRegistered(t *testing.T) {
	t.Parallel()
	assert.Subset(t, registry(standard.Deps{}).Names(), config.Suggested())
}

func TestEveryScorerSaysInOneLineWhatItIs(t *testing.T) {
	t.Parallel()
	eachScorer(t, func(t *testing.T, s rewards.Spec) {
		t.Helper()
		assert.NotEmpty(t, s.Summary)
		assert.NotContains(t, s.Summary, "\n")
		assert.Regexp(t, `^[a-z][a-z0-9_]*$`, s.Name, "what follows builtin:// in the configuration")
	})
}

func TestEveryOptionIsDocumentedAndTaken(t *testing.T) {
	t.Parallel()
	eachScorer(t, func(t *testing.T, s rewards.Spec) {
		t.Helper()
		seen := map[string]bool{}
		for _, o := range s.Options {
			assert.Regexp(t, `^[a-z][a-z0-9_]*$`, o.Name)
			assert.NotEmpty(t, o.Type, o.Name)
			assert.NotEmpty(t, o.Default, o.Name)
			assert.NotEmpty(t, o.Doc, o.Name)
			assert.False(t, seen[o.Name], "%s is documented twice", o.Name)
			seen[o.Name] = true
			// null leaves the default of an option of any type, and is an unknown
			// field where unknown option.
			raw := `{"` + o.Name + `": null}`
			if more := needed[s.Name]; more != "" {
				raw = `{"` + o.Name + `": null, ` + more[1:] // the later one counts
			}
			_, err := made(s, raw)
			if s.Name == config.HTTPScorer && err != nil { // most are of some protocols only
				require.ErrorContains(t, err, o.Name+": unknown option of the protocol slime", "the option %s is documented and not taken", o.Name)
				continue
			}
			assert.NoError(t, err, "the option %s is documented and not taken", o.Name)
		}
	})
}

func TestEveryScorerIsBuiltWithoutOptionsAndRefusesUnknownOnes(t *testing.T) {
	t.Parallel()
	eachScorer(t, func(t *testing.T, s rewards.Spec) {
		t.Helper()
		for _, raw := range []string{"", "{}", " null "} {
			sc, err := made(s, raw)
			if needed[s.Name] != "" {
				require.ErrorContains(t, err, lacks[s.Name])
				continue
			}
			require.NoError(t, err, "options %q", raw)
			require.NotNil(t, sc)
		}
		for _, raw := range []string{`{"no_such_option": 1}`, `[]`, `{} {}`, `{`} {
			_, err := made(s, raw)
			require.Error(t, err, "options %q", raw)
		}
		_, err := made(s, `{"no_such_option": 1}`)
		assert.ErrorContains(t, err, "no_such_option")
	})
}

// A profile of all scorers together is one that a manager takes: no scorer
// declares a field that the trainer keeps for itself.
func TestAllScorersTogetherMakeAProfileAndEachMakesOneAlone(t *testing.T) {
	t.Parallel()
	reg := registry(everything())
	var all rewards.ManagerConfig
	for _, name := range reg.Names() {
		spec, _ := reg.Spec(name)
		sc, err := made(spec, needed[name])
		require.NoError(t, err)
		component := rewards.Component{Key: name, Weight: 1}
		component.Scorer, _ = sc.(rewards.Scorer)
		component.Group, _ = sc.(rewards.GroupScorer)
		all.Components = append(all.Components, component)
		assert.Implements(t, (*rewards.ExtraFielder)(nil), sc, "%s must declare its extra fields, if only that it has none", name)
		if _, ok := sc.(rewards.Dependent); ok {
			continue // alone it has nothing to look at
		}
		_, err = rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{component}, Single: true})
		require.NoError(t, err, name)
	}
	m, err := rewards.NewManager(all)
	require.NoError(t, err)
	require.NoError(t, m.Close())
}

// Nothing a scorer gets can be scored here, so each must say so with a class
// instead of a number. What a function in Python or another service makes of it is
// their choice.
func TestNoScorerGivesANumberForAnEmptySample(t *testing.T) {
	t.Parallel()
	eachScorer(t, func(t *testing.T, s rewards.Spec) {
		t.Helper()
		if s.Name == config.PythonScorer || s.Name == config.HTTPScorer {
			return
		}
		sc, err := made(s, needed[s.Name])
		require.NoError(t, err)
		if group, ok := sc.(rewards.GroupScorer); ok {
			empty := []rewards.Member{{Sample: &rewards.Sample{ID: "a"}}, {Sample: &rewards.Sample{ID: "b"}}}
			scores, err := group.ScoreGroup(t.Context(), &rewards.Group{UID: "u", Size: 2, Members: empty})
			for _, m := range scores {
				require.Error(t, m.Err)
			}
			require.True(t, err != nil || len(scores) == 2)
			return
		}
		one, ok := sc.(rewards.Scorer)
		require.True(t, ok)
		_, err = one.Score(t.Context(), &rewards.Sample{ID: "empty"})
		require.Error(t, err)
		assert.Equal(t, rewards.BadInput, rewards.ClassOf(err))
	})
}

// A scorer stands in the README of its package. Which package that is follows from the
// README, so that a scorer more changes no test.
func TestEveryScorerHasAReadmeThatNamesItAndItsOptions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "*", "README.md"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	eachScorer(t, func(t *testing.T, s rewards.Spec) {
		t.Helper()
		var nearest []string // what the README lacks that lacks least
		for i, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			lacking := lackingWords(string(text), s)
			if len(lacking) == 0 {
				return
			}
			if i == 0 || len(lacking) < len(nearest) {
				nearest = append([]string{file}, lacking...)
			}
		}
		assert.Fail(t, "no README says what the scorer is", "%s lacks %q", nearest[0], nearest[1:])
	})
}

// lackingWords are what a README should say of a scorer and does not.
func lackingWords(text string, s rewards.Spec) (lacking []string) {
	for _, word := range append(optionNames(s), s.Name) {
		if !regexp.MustCompile(`(^|[^\w])` + regexp.QuoteMeta(word) + `([^\w]|$)`).MatchString(text) {
			lacking = append(lacking, word)
		}
	}
	topics := []string{"range", "fail", "cost", "builtin://"}
	if s.Name == config.PythonScorer {
		topics = topics[:3]
	}
	for _, topic := range topics {
		if !strings.Contains(strings.ToLower(text), topic) {
			lacking = append(lacking, topic)
		}
	}
	return lacking
}

func optionNames(s rewards.Spec) []string {
	names := make([]string, len(s.Options))
	for i, o := range s.Options {
		names[i] = o.Name
	}
	return names
}

func TestWhatAScorerLacksIsSaidWhenItIsBuilt(t *testing.T) {
	t.Parallel()
	reg := registry(standard.Deps{})
	missing := map[string]string{"ocr": "text reader", "pairwise": "engine", "listwise": "engine"}
	for says, specs := range map[string][]rewards.Spec{
		"no engine is configured":               judge.Specs(judge.Deps{}),
		"no HTTP client":                        remote.Specs(nil),
		"this process has no runner for models": slices.Concat(preference.Specs(preference.Deps{}), vlm.Specs(nil)),
	} {
		for _, s := range specs {
			missing[s.Name] = says
		}
	}
	for _, name := range reg.Names() {
		spec, _ := reg.Spec(name)
		_, err := made(spec, needed[name])
		if says := missing[name]; says != "" {
			require.ErrorContains(t, err, says, name)
			continue
		}
		require.NoError(t, err, name)
	}
}

func TestRegisteringTwiceIsAMistakeInTheProgram(t *testing.T) {
	t.Parallel()
	reg := registry(standard.Deps{})
	assert.Panics(t, func() { standard.Register(reg, standard.Deps{}) })
}
