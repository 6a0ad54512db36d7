package pool_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
)

// foreseeing knows the slots of a device before it is open.
type foreseeing struct{ *fake }

func (foreseeing) Slots(device string) int {
	if device == "cpu" {
		return 4
	}
	return 1
}

func TestTheCPUExecutesOneCallForEachSession(t *testing.T) {
	t.Parallel()
	e := pool.Executors{Device: "cpu", Slots: 3, MaxBatch: 32}
	assert.Equal(t, 3, rewards.ConcurrencyOf(e))
	assert.Equal(t, "3 sessions on cpu", rewards.ConcurrencyReason(e))
}

func TestACardExecutesItsLargestBatchAndPreparesAnother(t *testing.T) {
	t.Parallel()
	e := pool.Executors{Device: "cuda:1", Slots: 1, MaxBatch: 32}
	assert.Equal(t, 64, rewards.ConcurrencyOf(e))
	assert.Equal(t, "1 session on cuda:1 with batches of up to 32, while as many are prepared", rewards.ConcurrencyReason(e))
}

func TestAModelHasTheSlotsOfItsDeviceOnceThatIsOpen(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{slots: 3}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		assert.Equal(t, 1, m.Concurrency(), "nobody knows yet")
		warm(t, m)
		assert.Equal(t, 3, m.Concurrency())
		assert.Equal(t, "3 sessions on cpu", m.ConcurrencyReason())
	})
}

func TestADeviceMayBeForeseenBeforeItIsOpen(t *testing.T) {
	t.Parallel()
	p, err := pool.New(pool.Config{MaxBatch: 8}, foreseeing{&fake{slots: 2}})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(t.Context())) }()
	for device, want := range map[string]int{"cpu": 4, "cuda:0": 16} {
		m, err := p.Model(infer.Model{Name: "m", Path: "m.onnx", Device: device}, pool.ModelOptions{})
		require.NoError(t, err)
		assert.Equal(t, want, m.Concurrency(), device)
	}
}

func TestAModelOfSmallBatchesHasAsManyCallsOnACard(t *testing.T) {
	t.Parallel()
	card := infer.Model{Name: "m", Path: "m.onnx", Device: "cuda:0"}
	fixed := &fake{info: infer.Info{Inputs: []infer.Port{{Name: "x", DType: "F32", Shape: []int{1, 3}}}}}
	onStage(t, fixed, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, card)
		assert.Equal(t, 64, m.Concurrency())
		_, err := m.Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 2, m.Concurrency(), "its file fixes the batch axis at 1")
	})
	onStage(t, &fake{}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m, err := s.Model(card, pool.ModelOptions{MaxBatch: 4})
		require.NoError(t, err)
		assert.Equal(t, 8, m.Concurrency())
	})
}
