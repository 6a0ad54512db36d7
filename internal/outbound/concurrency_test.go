package outbound_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestAnUpstreamAloneHasItsWholeConcurrency(t *testing.T) {
	t.Parallel()
	g := fake(t, outbound.UpstreamConfig{Name: "qwen"}, nil)
	assert.Equal(t, 256, rewards.ConcurrencyOf(g))
	assert.Equal(t, "256 requests at a time to qwen", rewards.ConcurrencyReason(g))
	g = fake(t, outbound.UpstreamConfig{Name: "qwen", Concurrency: 8, RPM: 600, TPM: 1e6}, nil)
	assert.Equal(t, 8, rewards.ConcurrencyOf(g))
	assert.Equal(t, "8 requests at a time to qwen, and at most 600 requests a minute, 1000000 tokens a minute", rewards.ConcurrencyReason(g),
		"what a call may wait for besides is said")
}

func TestAnUpstreamOfAFleetHasItsShareOfTheConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bus
		cfg := outbound.UpstreamConfig{Name: "qwen", Concurrency: 30}
		_, one := b.start(t, "one", cfg, nil)
		time.Sleep(10 * time.Second) // Of the bubble.
		assert.Equal(t, 30, one.Concurrency())
		assert.Equal(t, "its share of 30 requests at a time to qwen", one.ConcurrencyReason())
		_, two := b.start(t, "two", cfg, nil)
		_, three := b.start(t, "three", cfg, nil)
		time.Sleep(10 * time.Second) // Of the bubble.
		for _, g := range []*outbound.Upstream{one, two, three} {
			assert.Equal(t, 10, g.Concurrency(), "nobody wants anything")
			assert.Equal(t, "its share of 30 requests at a time to qwen, for 3 processes together", g.ConcurrencyReason())
		}
	})
}

func TestAServiceHasFewerCallsThatSendManyRequestsEach(t *testing.T) {
	t.Parallel()
	var b outbound.Breadth
	assert.Equal(t, 256, b.Calls(256), "a call is one request until one was seen")
	assert.Equal(t, "why", b.Reason("why"))
	b.Saw(16)
	assert.Equal(t, 16, b.Calls(256))
	assert.Equal(t, 1, b.Calls(2), "never less than one")
	assert.Equal(t, "why, and a call has about 16.0 in flight", b.Reason("why"))
	for range 200 {
		b.Saw(1)
	}
	assert.Equal(t, 256, b.Calls(256), "the latest calls count")
	b.Saw(3)
	assert.Equal(t, 228, b.Calls(256), "rounded up")
}

func TestBreadthIsSeenFromManyGoroutines(t *testing.T) {
	t.Parallel()
	var b outbound.Breadth
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 1000 {
				b.Saw(5)
			}
		})
	}
	all.Wait()
	assert.InDelta(t, 5, b.Mean(), 1e-9)
}
