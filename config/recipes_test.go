package config_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/pool/cards"
	"github.com/rewardloop/rewardloop/pool/engines"
	"github.com/rewardloop/rewardloop/rewards"
)

// example is a recipe of verl-omni in testdata/verlomni/recipes.yaml, which says what its
// fields are.
type example struct {
	File, Base string
	Trainer    struct {
		Cards int `yaml:"n_gpus_per_node"`
		Nodes int `yaml:"nnodes"`
	}
	Reward []string
	Want   struct {
		Workers  int `yaml:"num_workers"`
		Pool     int `yaml:"pool_cards"`
		Replicas int
		Tensor   int
	}
	Refused, Ignored []string
}

func exampleRecipes(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "verlomni", "recipes.yaml"))
	require.NoError(t, err)
	var table struct {
		Source, Commit string
		Recipes        []example
	}
	require.NoError(t, yaml.Unmarshal(text, &table))
	require.GreaterOrEqual(t, len(table.Recipes), 30)
	return table.Recipes
}

// withBase puts the keys of a recipe's base before its own.
func withBase(x example, all []example) []string {
	if x.Base == "" {
		return x.Reward
	}
	at := slices.IndexFunc(all, func(o example) bool { return o.File == x.Base })
	return slices.Concat(all[at].Reward, x.Reward)
}

// inCheckout replaces CHECKOUT, and makes the Python files that the recipe names.
func (x example) inCheckout(t *testing.T) (overrides []string) {
	t.Helper()
	root := t.TempDir()
	for _, line := range x.Reward {
		key, v, _ := strings.Cut(line, "=")
		if strings.HasPrefix(v, "verl_omni/") { // from the working directory, which is the checkout
			v = "CHECKOUT/" + v
		}
		if name, ok := strings.CutPrefix(v, "CHECKOUT/"); ok && strings.HasSuffix(key, ".path") {
			v = filepath.Join(root, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(v), 0o750))
			require.NoError(t, os.WriteFile(v, nil, 0o600))
		}
		overrides = append(overrides, key+"="+v)
	}
	return overrides
}

// machine has so many healthy cards.
func machine(n int) []cards.Card {
	out := make([]cards.Card, n)
	for i := range out {
		out[i] = cards.Card{Index: i, UUID: fmt.Sprintf("GPU-%d", i), Name: "H100", MemoryBytes: 80 << 30, FreeBytes: 79 << 30}
	}
	return out
}

const rewardEngine, noReward = "reward.reward_model.rollout.name", "reward"

// Each recipe as it stands: what is refused is named, and nothing else. With that mended:
// workers, pool, engines, their size and how many are started are verl-omni's.
func TestRecipesOfVerlOmniHaveTheWorkersTheCardsAndTheEnginesThatVerlOmniGivesThem(t *testing.T) {
	t.Parallel()
	all := exampleRecipes(t)
	for _, x := range all {
		x.Reward = withBase(x, all)
		t.Run(strings.TrimPrefix(x.File, "examples/"), func(t *testing.T) {
			t.Parallel()
			overrides := x.inCheckout(t)
			_, err := config.Load("", overrides, nil)
			faults, _ := errors.AsType[config.FaultsError](err)
			var refused []string
			for _, f := range faults {
				refused = append(refused, f.Key)
			}
			assert.Equal(t, x.Refused, refused, "%v", err)

			mended := slices.Clone(overrides)
			if slices.Contains(refused, noReward) {
				mended = append(mended, "reward.custom_reward_function.path=builtin://ocr")
			}
			c := parse(t, "", mended...)
			var ignored []string
			for _, n := range c.Notes() {
				if strings.Contains(n.Message, "no effect") || strings.Contains(n.Message, "rewardloop starts no engine here") {
					ignored = append(ignored, n.Key)
				}
			}
			assert.Equal(t, x.Ignored, ignored)

			p := c.Profiles["default"]
			assert.Equal(t, x.Want.Workers, c.NumWorkers)
			assert.Equal(t, x.Want.Pool, p.Cards.All())
			if x.Want.Tensor == 0 {
				assert.Nil(t, c.Engines[p.Engine])
				return
			}
			e := c.Engines[p.Engine]
			assert.Equal(t, x.Want.Tensor, e.Parallel.Tensor)
			world := p.Cards.All()
			if world == 0 { // colocated
				world = x.Trainer.Cards * x.Trainer.Nodes
			}
			assert.Equal(t, x.Want.Replicas, e.Parallel.Replicas(world))
			x.starts(t, c, e)
			x.plans(t, overrides)
		})
	}
}

// starts has the recipe's engine started on a machine of eight cards.
func (x example) starts(t *testing.T, c *config.Config, e *config.Engine) {
	t.Helper()
	require.NotNil(t, e.Managed)
	assert.Equal(t, engines.VLLM, e.Managed.Kind)
	servers := 1 // where the engine has the trainer's cards
	if p := c.Profiles["default"].Cards; p.PerNode > 0 {
		servers = x.Want.Replicas / p.Nodes
	}
	assert.Equal(t, servers, e.Managed.Servers)
	plan, err := c.PlanCards(new(rewards.Registry), machine(8))
	require.NoError(t, err)
	require.Len(t, plan.Owners, servers)
	for i, o := range plan.Owners {
		assert.Equal(t, config.SetOwner("reward_model", i), o.Owner)
		assert.Len(t, o.Devices, x.Want.Tensor)
	}
}

// plans has the recipe's reward model run here, on a machine of eight cards and on one that
// has too few.
func (x example) plans(t *testing.T, overrides []string) {
	t.Helper()
	own := slices.Clone(overrides)
	own[slices.Index(own, rewardEngine+"=vllm")] = rewardEngine + "=onnx"
	c := parse(t, "", append(own, "+reward.reward_model.rollout.device=cuda")...)
	plan, err := c.PlanCards(new(rewards.Registry), machine(8))
	require.NoError(t, err)
	want := 8 // every card, where there is no pool
	if x.Want.Pool > 0 {
		want = c.PoolCards()
		assert.Equal(t, x.Want.Pool, want*c.Profiles["default"].Cards.Nodes)
		_, err = c.PlanCards(new(rewards.Registry), machine(want-1))
		require.ErrorContains(t, err, "reward.reward_model.rollout.device: ")
	}
	assert.Len(t, plan.Pool, want)
	require.Len(t, plan.Owners, 1)
	assert.Equal(t, plan.Pool, plan.Owners[0].Devices)
}

// The table is what the recipes say, where they are at hand.
func TestRecipesOfVerlOmniAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	root := os.Getenv("REWARDLOOP_VERL_OMNI")
	if root == "" {
		t.Skip("SKIPPED: REWARDLOOP_VERL_OMNI names no checkout of verl-omni")
	}
	var found []example
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "examples"), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".sh" {
			return err
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		s := shell{"HOME": "/root", "repo_root": "CHECKOUT"}
		x := s.read(t, string(text))
		if len(x.Reward) > 0 {
			x.File, _ = filepath.Rel(root, file)
			x.File = filepath.ToSlash(x.File)
			found = append(found, x)
		}
		return nil
	}))
	table := exampleRecipes(t)
	for i := range table {
		x := &table[i]
		if x.Base != "" { // it says how many cards there are
			x.Trainer = example{}.Trainer
		}
		x.Want, x.Base, x.Refused, x.Ignored = example{}.Want, "", nil, nil
	}
	byFile := func(a, b example) int { return strings.Compare(a.File, b.File) }
	slices.SortFunc(found, byFile)
	slices.SortFunc(table, byFile)
	assert.Equal(t, table, found)
}

// shell holds the variables of a shell script, as far as the recipes use them.
type shell map[string]string

var (
	assignment = regexp.MustCompile(`^(?:export )?([A-Za-z_]\w*)=("[^"]*"|'[^']*'|\$\(\([^()]*\)\)|\$\{[^}]*\}|[^\s"']*)\s*(?:#.*)?$`)
	argument   = regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`)
	arithmetic = regexp.MustCompile(`\$\(\(([^()]*)\)\)`)
	variable   = regexp.MustCompile(`\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(:-"?([^}"]*)"?)?\})`)
	factor     = regexp.MustCompile(`[A-Za-z_]\w*|\d+|[*/]`)
)

// read collects the arguments of the trainer that are about rewards, and its cards.
func (s shell) read(t *testing.T, text string) (x example) {
	t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if m := assignment.FindStringSubmatch(line); m != nil {
			if m[1] != "repo_root" {
				s[m[1]] = s.value(m[2])
			}
			continue
		}
		if strings.HasPrefix(line, "#") || !strings.Contains(line, "reward.") && !strings.Contains(line, "trainer.n") {
			continue
		}
		for _, word := range argument.FindAllString(arithmetic.ReplaceAllStringFunc(line, s.value), -1) {
			word = s.value(word)
			key, v, _ := strings.Cut(word, "=")
			switch {
			case strings.HasPrefix(strings.TrimLeft(key, "+"), "reward."):
				x.Reward = append(x.Reward, word)
			case key == "trainer.n_gpus_per_node", key == "trainer.nnodes":
				n, err := strconv.Atoi(v)
				require.NoError(t, err, word)
				if key == "trainer.nnodes" {
					x.Trainer.Nodes = n
				} else {
					x.Trainer.Cards = n
				}
			}
		}
	}
	return x
}

// value is a word with its variables replaced and its quotes gone.
func (s shell) value(word string) string {
	if strings.HasPrefix(word, "'") {
		return strings.Trim(word, "'")
	}
	word = arithmetic.ReplaceAllStringFunc(word, func(e string) string {
		n, op := 1, "*"
		for _, f := range factor.FindAllString(e, -1) {
			if f == "*" || f == "/" {
				op = f
				continue
			}
			v, err := strconv.Atoi(f)
			if err != nil {
				v, _ = strconv.Atoi(s[f]) // what is no number is no size of anything
			}
			if op == "/" && v != 0 {
				n /= v
			} else if op == "*" {
				n *= v
			}
		}
		return strconv.Itoa(n)
	})
	return strings.NewReplacer(`"`, "", "'", "").Replace(variable.ReplaceAllStringFunc(word, func(ref string) string {
		m := variable.FindStringSubmatch(ref)
		if v := s[m[1]+m[2]]; v != "" || m[3] == "" {
			return v
		}
		return s.value(m[4])
	}))
}
