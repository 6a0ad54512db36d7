package main

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
)

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// The server is killed and started again on the same port while samples are on their
// way to it; the client sends again what it has no result for.
func TestAServerKilledThreeTimesInARunOf2000SamplesYieldsOneResultEach(t *testing.T) {
	t.Parallel()
	const samples, kills = 2000, 3
	addr := freePort(t)
	serve := func() *process {
		p := start(t, "", nil, nil, "serve", "-c", "testdata/cfg.yaml", "--listen", addr)
		p.stderr.await(t, "msg=serving")
		return p
	}
	server := serve()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "kills"})
	require.NoError(t, err)

	// Counts every result that the client hands out, by id.
	results := map[string]int{}
	reached := make(chan int, samples)
	var reader sync.WaitGroup
	all := c.Results(ctx)
	reader.Go(func() {
		n := 0
		for r := range all {
			results[r.ID]++
			n++
			reached <- n
		}
	})

	futures := make([]*client.Future, samples)
	want := make([]float64, samples)
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range futures {
			file, reward := drawing(t, i)
			want[i] = reward
			f, err := c.Submit(ctx, &rewards.Sample{
				ID:    strconv.Itoa(i),
				Media: []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(file)}, Data: file}},
			}, 0)
			if err != nil {
				t.Errorf("sample %d: %v", i, err)
				return
			}
			futures[i] = f
		}
	})

	done := 0
	for kill := range kills {
		for done < samples*(kill+1)/(kills+1) {
			select {
			case done = <-reached:
			case <-ctx.Done():
				t.Fatalf("%d of %d results before kill %d", done, samples, kill+1)
			}
		}
		require.NoError(t, server.Process.Kill())
		<-server.exited
		server = serve()
	}
	sender.Wait()
	require.False(t, t.Failed())
	for i, f := range futures {
		res, err := f.Wait(ctx)
		require.NoError(t, err, "sample %d", i)
		require.Equal(t, rewards.Scored, res.Outcome, "sample %d: %v", i, res.Errors)
		require.InDelta(t, want[i], *res.RewardScore, 1e-12, "sample %d has another picture's score", i)
	}
	for done < samples { // the iterator comes after the futures
		select {
		case done = <-reached:
		case <-ctx.Done():
			t.Fatalf("%d of %d results were handed out", done, samples)
		}
	}
	require.NoError(t, c.Close())
	reader.Wait()
	require.Len(t, results, samples)
	for id, n := range results {
		require.Equal(t, 1, n, "sample %s was answered %d times", id, n)
	}
}
