package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// agent is the published experiment: 1024 prompts × 5, rewards of 1 to 40 s, all
// submitted after a rollout of 53 s.
func agent(mode string, servers, steps int) sim.TrainerConfig {
	const rows = 1024 * 5
	c := sim.TrainerConfig{
		Mode: mode, Group: 5, Pool: sim.DispatchConfig{Servers: servers},
		LogProb: 13, Update: 100, Other: 26, MiniBatches: 4,
	}
	rng := rand.New(rand.NewPCG(7, uint64(servers)))
	for range steps {
		r := make([]float64, rows)
		for i := range r {
			r[i] = 1 + 39*rng.Float64()
		}
		c.G, c.R = append(c.G, slices.Repeat([]float64{53}, rows)), append(c.R, r)
	}
	return c
}

// An independent simulation of the same experiment over 105 steps, seconds per
// step. From few steps the long run follows: the first, and the steady rest.
func TestTheTrainerReproducesTheStepTimesOfTheExperiment(t *testing.T) {
	t.Parallel()
	const steps, published = 6, 105
	modes := []string{sim.ModeBatch, sim.ModePipeline, sim.ModeOneStepOff, sim.ModeBoth}
	for servers, want := range map[int][4]float64{
		128:  {1023, 948, 823, 822},
		256:  {614, 539, 412, 412},
		512:  {409, 334, 209, 206},
		1024: {307, 232, 193, 193},
		2048: {256, 215, 193, 193},
		5120: {219, 210, 193, 193},
	} {
		for i, mode := range modes {
			t.Run(fmt.Sprint(mode, servers), func(t *testing.T) {
				t.Parallel()
				cfg := agent(mode, servers, steps)
				run, err := sim.Trainer(cfg)
				require.NoError(t, err)
				require.NotNil(t, run.Steady)
				long := (run.Ends[0] + (published-1)**run.Steady) / published
				t.Logf("%s at %d: %.1f s per step, %.0f wanted", mode, servers, long, want[i])
				assert.InEpsilon(t, want[i], long, 0.015)
				bound, err := sim.TrainerBound(cfg)
				require.NoError(t, err)
				assert.GreaterOrEqual(t, run.PerStep, bound-1e-9)
			})
		}
	}
}

// drawTrainer draws a small trainer; times are multiples of 1/64 s, and the
// mini-batches 1, 2 or 4, so that sums are exact.
func drawTrainer(rng *rand.Rand) sim.TrainerConfig {
	times := func(n, below int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64(rng.IntN(below)) / 64
		}
		return v
	}
	c := sim.TrainerConfig{
		Group: 1 + rng.IntN(3), MiniBatches: 1 << rng.IntN(3), Pool: sim.DispatchConfig{Servers: 1 << rng.IntN(4), Seed: rng.Uint64()},
		LogProb: float64(rng.IntN(200)) / 64, Update: float64(rng.IntN(2000)) / 64, Other: float64(rng.IntN(200)) / 64,
		Order: []string{sim.OrderCompletion, sim.OrderIndex}[rng.IntN(2)],
	}
	rows := c.Group * (c.MiniBatches + rng.IntN(8))
	for range 1 + rng.IntN(4) {
		c.G, c.R = append(c.G, times(rows, 1500)), append(c.R, times(rows, 1+rng.IntN(1500)))
	}
	return c
}

func TestNoTrainerBeatsItsBound(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(51, 52))
	for range 100 {
		cfg := drawTrainer(rng)
		for _, cfg.Pool.Policy = range []string{sim.PolicyRandom, sim.PolicyRandomBlind} {
			for _, cfg.Mode = range sim.Modes() {
				run, err := sim.Trainer(cfg)
				require.NoError(t, err)
				bound, err := sim.TrainerBound(cfg)
				require.NoError(t, err)
				require.GreaterOrEqual(t, run.PerStep, bound-1e-9, "%s: %+v", cfg.Mode, cfg)
				for k := range cfg.G {
					require.GreaterOrEqual(t, run.Exposed[k], 0.0)
					for i := range cfg.G[k] {
						require.LessOrEqual(t, run.Scored[k][i], run.Ends[k], "a step ended before row %d was scored", i)
					}
				}
			}
		}
	}
}

// Where rows are generated in the order of the batch. Otherwise streaming is
// another order on the same servers, and an order can be lucky.
func TestMoreOverlapNeverCostsTime(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(55, 56))
	for range 300 {
		cfg := drawTrainer(rng)
		for _, g := range cfg.G {
			slices.Sort(g)
		}
		per := map[string]float64{}
		for _, cfg.Mode = range sim.Modes() {
			run, err := sim.Trainer(cfg)
			require.NoError(t, err)
			per[cfg.Mode] = run.PerStep
		}
		for _, pair := range [][2]string{
			{sim.ModeStreaming, sim.ModeBatch},
			{sim.ModePipeline, sim.ModeBatch},
			{sim.ModeOneStepOff, sim.ModeBatch},
			{sim.ModeStreamingPipeline, sim.ModeStreaming},
			{sim.ModeStreamingPipeline, sim.ModePipeline},
			{sim.ModeBoth, sim.ModeStreamingPipeline},
			{sim.ModeBoth, sim.ModeOneStepOff},
		} {
			require.LessOrEqual(t, per[pair[0]], per[pair[1]]+1e-9, "%v: %+v", pair, cfg)
		}
	}
}

// One step, no log-probabilities: the trainer's wait is the exposed time of the
// schedules that have closed tests of their own.
func TestATrainerOfOneStepWaitsWhatItsScheduleExposes(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(53, 54))
	for range 200 {
		g, r, servers := load(rng)
		for mode, policy := range map[string]func([]float64, []float64, int) (sim.Schedule, error){
			sim.ModeStreaming: sim.IdealQueue, sim.ModeBatch: sim.BatchAfterRollout,
		} {
			s, err := policy(g, r, servers)
			require.NoError(t, err)
			run, err := sim.Trainer(sim.TrainerConfig{Mode: mode, G: [][]float64{g}, R: [][]float64{r}, Pool: sim.DispatchConfig{Servers: servers}, Update: 4})
			require.NoError(t, err)
			require.InDelta(t, s.Exposed(), run.Exposed[0], 0, mode)
			require.InDelta(t, s.Makespan+4, run.PerStep, 0, mode)
			require.Nil(t, run.Steady)
		}
	}
}

func TestOneStepOffPaysForTheScoresOnlyOnce(t *testing.T) {
	t.Parallel()
	// Generation 10 s, one sample of 15 s, update 20 s: the scores of a batch are
	// there before the one after it is generated and the one before it is updated.
	cfg := sim.TrainerConfig{Mode: sim.ModeOneStepOff, Pool: sim.DispatchConfig{Servers: 1}, Update: 20, Other: 1}
	for range 4 {
		cfg.G, cfg.R = append(cfg.G, []float64{10}), append(cfg.R, []float64{15})
	}
	run, err := sim.Trainer(cfg)
	require.NoError(t, err)
	assert.Equal(t, []float64{5, 0, 0, 0}, run.Exposed)
	assert.Equal(t, []float64{46, 77, 108, 129}, run.Ends)
	assert.InDelta(t, 31, *run.Steady, 0)
	assert.InDelta(t, 129.0/4, run.PerStep, 0)
}

func TestAPipelineUpdatesOnTheGroupsThatAreThere(t *testing.T) {
	t.Parallel()
	// Two mini-batches of one group of two rows; the first group's second row is late.
	cfg := sim.TrainerConfig{
		Mode: sim.ModeStreamingPipeline, Group: 2, MiniBatches: 2, Update: 4, Pool: sim.DispatchConfig{Servers: 4},
		G: [][]float64{{1, 2, 3, 4}}, R: [][]float64{{1, 18, 1, 1}},
	}
	run, err := sim.Trainer(cfg)
	require.NoError(t, err)
	assert.Equal(t, []float64{22}, run.Ends, "update on the second group from 5 to 7, then at 20")
	assert.Equal(t, []float64{1 + 13}, run.Exposed)
	assert.Equal(t, [][]float64{{2, 20, 4, 5}}, run.Scored)
	cfg.Order = sim.OrderIndex
	run, err = sim.Trainer(cfg)
	require.NoError(t, err)
	assert.Equal(t, []float64{24}, run.Ends)
}

func TestADeviceScoresWhatIsThereAsOneBatch(t *testing.T) {
	t.Parallel()
	// 10 samples at once on two devices: 4 and 4, then 2.
	cfg := sim.TrainerConfig{
		Mode: sim.ModeBatch, Pool: sim.DispatchConfig{Servers: 2, Batch: sim.BatchCost{Fixed: 1, PerSample: 0.5, Max: 4}},
		G: [][]float64{slices.Repeat([]float64{5}, 10)},
	}
	run, err := sim.Trainer(cfg)
	require.NoError(t, err)
	assert.Equal(t, [][]float64{{8, 8, 8, 8, 8, 8, 8, 8, 10, 10}}, run.Scored)
	bound, err := sim.TrainerBound(cfg)
	require.NoError(t, err)
	assert.InDelta(t, 5+10*0.75/2, bound, 1e-12)
	assert.InDelta(t, 4.0/3, cfg.Pool.Batch.Rate(), 1e-12)
}

func TestATrainerThatMakesNoSenseIsRefusedByName(t *testing.T) {
	t.Parallel()
	good := func() sim.TrainerConfig {
		return sim.TrainerConfig{Mode: sim.ModeBatch, Pool: sim.DispatchConfig{Servers: 1}, G: [][]float64{{1, 2}}, R: [][]float64{{1, 1}}}
	}
	for says, spoil := range map[string]func(*sim.TrainerConfig){
		`mode "sync"`:               func(c *sim.TrainerConfig) { c.Mode = "sync" },
		`order "random"`:            func(c *sim.TrainerConfig) { c.Order = "random" },
		"update take NaN":           func(c *sim.TrainerConfig) { c.Update = math.NaN() },
		"0 servers":                 func(c *sim.TrainerConfig) { c.Pool.Servers = 0 },
		"of 1 steps and service":    func(c *sim.TrainerConfig) { c.R = nil },
		"step 0: sim: load":         func(c *sim.TrainerConfig) { c.G[0][1] = -1 },
		"not a multiple of the":     func(c *sim.TrainerConfig) { c.Group = 3 },
		"2 groups for 3 mini-batch": func(c *sim.TrainerConfig) { c.MiniBatches = 3 },
	} {
		cfg := good()
		spoil(&cfg)
		_, err := sim.Trainer(cfg)
		require.ErrorIs(t, err, sim.ErrLoad, says)
		require.ErrorContains(t, err, says)
	}
}

// Two steps of 5120 samples on 1024 servers.
func BenchmarkTrainer(b *testing.B) {
	cfg := agent(sim.ModeBoth, 1024, 2)
	for b.Loop() {
		if _, err := sim.Trainer(cfg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTrainerOfALargeStep(b *testing.B) {
	const rows = 100_000
	g, r := make([]float64, rows), make([]float64, rows)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range g {
		g[i], r[i] = float64(i)/400, 1+39*rng.Float64()
	}
	for _, mode := range []string{sim.ModeStreaming, sim.ModeBoth} {
		b.Run(mode, func(b *testing.B) {
			cfg := sim.TrainerConfig{Mode: mode, Group: 10, MiniBatches: 4, Pool: sim.DispatchConfig{Servers: 5120}, G: [][]float64{g, g, g, g}, R: [][]float64{r, r, r, r}, Update: 100}
			for b.Loop() {
				if _, err := sim.Trainer(cfg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
