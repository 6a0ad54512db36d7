package node_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/queue/acl"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// joinAs brings a process of workers up.
func joinAs(t *testing.T, name, nats string, overrides ...string) *node.Worker {
	t.Helper()
	w, err := joining(t, name, nats, overrides...)
	require.NoError(t, err)
	return w
}

func joining(t *testing.T, name, nats string, overrides ...string) (*node.Worker, error) {
	t.Helper()
	overrides = append([]string{"++queue.nats=[" + nats + "]", "++queue.name=" + name, "reward.num_workers=2"}, overrides...)
	cfg, err := config.Load("", overrides, os.LookupEnv)
	require.NoError(t, err)
	w, err := node.NewWorker(node.Options{Config: cfg, Version: "test"})
	require.NoError(t, err)
	if err := w.Start(t.Context()); err != nil {
		return nil, err
	}
	t.Cleanup(w.Stop)
	return w, nil
}

// awaitWorkers waits until a gateway has heard of n workers.
func awaitWorkers(t *testing.T, addr string, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		res, err := http.Get("http://" + addr + "/v1/workers")
		require.NoError(t, err)
		defer res.Body.Close()
		var known struct{ Workers []wire.WorkerInfo }
		require.NoError(t, json.NewDecoder(res.Body).Decode(&known))
		return len(known.Workers) == n
	}, time.Minute, 20*time.Millisecond)
}

const incompressible = "reward.custom_reward_function.path=builtin://jpeg_incompressibility"

// both scores pictures alone, and compares the answers of a prompt group.
func both(engine string) []string {
	return []string{
		"reward.reward_model.enable=true", "reward.reward_model.model_path=m", "reward.reward_model.rollout.name=external",
		"+reward.reward_model.rollout.base_urls=[" + engine + "/v1]",
		"+reward.reward_functions.pairs.path=builtin://pairwise", "+reward.reward_functions.pairs.required=true",
		"+reward.reward_functions.size.path=builtin://jpeg_compressibility", "+reward.reward_functions.size.required=true",
	}
}

// A gateway without workers, two processes of workers, samples alone and in groups, small
// and of 3 MB: every score is what the same configuration gives in one process.
func TestRemoteWorkersGiveTheScoresOfOneProcess(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	engine, _ := stubEngine(t, func(_, turn string) string {
		if len(turn)%3 == 0 {
			return "<result>A</result>"
		}
		return "<result>B</result>"
	})
	alone, addr := start(t, append(both(engine), "reward.num_workers=2")...)
	require.NotNil(t, alone)
	want := scoreGroups(t, addr)
	gateway, addr := start(t, append(both(engine), "reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0", "++queue.name=gw")...)
	joinAs(t, "wa", "nats://"+gateway.NATS(), both(engine)...)
	joinAs(t, "wb", "nats://"+gateway.NATS(), both(engine)...)
	awaitWorkers(t, addr, 4) // their first word may be on its way
	got := scoreGroups(t, addr)
	for id, res := range got {
		assert.Equal(t, want[id].ExtraInfo["reward/combined"], res.ExtraInfo["reward/combined"], id)
		assert.Equal(t, want[id].Group, res.Group, id)
		// Six groups fall to two processes: each 32nd time all to one of them.
		assert.Contains(t, []string{"wa-w", "wb-w"}, strings.TrimRight(res.Worker, "0123456789"))
	}
}

// noisy is a raw picture that follows from its id.
func noisy(id string, side int) rewards.Sample {
	rng := rand.New(rand.NewPCG(crc(id), 0))
	data := make([]byte, 3*side*side)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return rewards.Sample{ID: id, Step: 1, Media: []*rewards.Media{{
		Kind: rewards.Image, Layout: rewards.CHW, Encoding: rewards.Raw, DType: "U8", Shape: []int{3, side, side}, Data: data,
	}}}
}

func crc(id string) uint64 { return uint64(crc32.ChecksumIEEE([]byte(id))) }

func page(t *testing.T, addr, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

// submitTLS has one sample scored over wss.
func submitTLS(t *testing.T, addr, ca string, s rewards.Sample) *wire.Result {
	t.Helper()
	pem, err := os.ReadFile(ca)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	c, err := client.Dial(t.Context(), client.Config{URL: "wss://" + addr, Run: "r", TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	require.NoError(t, err)
	defer c.Close()
	f, err := c.Submit(t.Context(), &s, 0)
	require.NoError(t, err)
	res, err := f.Wait(t.Context())
	require.NoError(t, err)
	return res
}

// scoreGroups sends 24 samples in groups of four.
func scoreGroups(t *testing.T, addr string) map[string]*wire.Result {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "groups"})
	require.NoError(t, err)
	defer c.Close()
	var futures []*client.Future
	for i := range 24 {
		side := 16 << (i % 5)
		if i == 6 {
			side = 1024 // 3 MB, sent in fragments; one is enough, because every comparison compresses it again
		}
		f, err := c.Submit(t.Context(), &rewards.Sample{
			ID: fmt.Sprint(i), UID: fmt.Sprint("g", i/4), GroupSize: 4, Prompt: fmt.Sprint("prompt ", i/4), Response: fmt.Sprint("answer ", i), Step: 1,
			Media: noisy(fmt.Sprint(i), side).Media,
		}, 0)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	out := map[string]*wire.Result{}
	for _, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		out[res.ID] = res
	}
	return out
}

// Two gateways with a worker each and no coordination: each one's samples may be scored by
// the other's worker.
func TestGatewaysShareTheirWorkers(t *testing.T) {
	t.Parallel()
	first, one := start(t, incompressible, "reward.num_workers=1", "++queue.nats_listen=127.0.0.1:0", "++queue.name=a")
	_, two := start(t, incompressible, "reward.num_workers=1", "++queue.nats=[nats://"+first.NATS()+"]", "++queue.name=b")
	for _, addr := range []string{one, two} {
		by := map[string]bool{}
		for try, until := 0, time.Now().Add(20*time.Second); len(by) < 2 && time.Now().Before(until); try++ {
			r := submit(t, addr, noisy(fmt.Sprint(try), 8))[0]
			require.Equal(t, rewards.Scored, r.Outcome, r.Errors)
			by[strings.Split(r.Worker, "-")[0]] = true
		}
		assert.Len(t, by, 2, addr)
	}
}

// Keys and certificates as `rewardloop queue acl --tls` makes them, on both connections.
func TestKeysAndCertificatesLetTheRightOnesIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := acl.Create(acl.Config{Dir: dir, Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	file := func(name string) string { return filepath.Join(dir, name) }
	gateway, addr := start(
		t, incompressible, "reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0", "++queue.acl_file="+file("acl.conf"), "++queue.nkey_file="+file("gateway.nk"),
		"++queue.tls_cert="+file("server.pem"), "++queue.tls_key="+file("server-key.pem"), "++queue.tls_ca="+file("ca.pem"),
		"++server.tls_cert="+file("server.pem"), "++server.tls_key="+file("server-key.pem"),
	)
	nats := "tls://" + gateway.NATS()
	ca := "++queue.tls_ca=" + file("ca.pem")
	joinAs(t, "w", nats, incompressible, ca, "++queue.nkey_file="+file("worker.nk"))
	res := submitTLS(t, addr, file("ca.pem"), noisy("x", 8))
	require.Equal(t, rewards.Scored, res.Outcome, res.Errors)

	for name, c := range map[string]struct {
		nats string
		with []string
		says string
	}{
		"no key":       {nats, []string{ca}, "rewardloop queue acl"},
		"another key":  {nats, []string{ca, "++queue.nkey_file=" + foreignKey(t)}, "rewardloop queue acl"},
		"no TLS":       {"nats://" + gateway.NATS(), []string{"++queue.nkey_file=" + file("worker.nk")}, "tls"},
		"unknown CA":   {nats, []string{"++queue.nkey_file=" + file("worker.nk")}, "certificate"},
		"the other CA": {nats, []string{"++queue.tls_ca=" + foreignCA(t), "++queue.nkey_file=" + file("worker.nk")}, "certificate"},
	} {
		_, err := joining(t, "x", c.nats, append(c.with, incompressible)...)
		require.ErrorContains(t, err, c.says, name)
	}
}

// With the keys that `rewardloop queue acl` makes a gateway and a worker share the limit
// of a judge that both could ask.
func TestALimitIsSharedByProcessesWithTheirOwnKeys(t *testing.T) {
	t.Parallel()
	engine, _ := stubEngine(t, func(string, string) string { return "<score>0.5</score>" })
	judged := []string{
		"reward.reward_model.enable=true", "reward.reward_model.model_path=m", "reward.reward_model.rollout.name=external",
		"+reward.reward_model.rollout.base_urls=[" + engine + "/v1]", "+reward.reward_model.rollout.requests_per_minute=600",
		"+reward.reward_functions.judge.path=builtin://judge", "+reward.reward_functions.judge.required=true",
		"+reward.reward_functions.judge.template=Is {response} right?",
	}
	dir := t.TempDir()
	_, err := acl.Create(acl.Config{Dir: dir})
	require.NoError(t, err)
	gateway, addr := start(t, append(judged, "reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0", "++queue.name=gw",
		"++queue.acl_file="+filepath.Join(dir, "acl.conf"), "++queue.nkey_file="+filepath.Join(dir, "gateway.nk"))...)
	joinAs(t, "w", "nats://"+gateway.NATS(), append(judged, "++queue.nkey_file="+filepath.Join(dir, "worker.nk"))...)
	res := submit(t, addr, rewards.Sample{ID: "a", Response: "four"})[0]
	require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
	assert.Eventually(t, func() bool {
		return strings.Contains(page(t, addr, "/metrics"), `rewardloop_outbound_fleet_processes{upstream="reward_model"} 2`)
	}, 20*time.Second, 50*time.Millisecond)
	assert.NotRegexp(t, `rewardloop_nats_(refused|denied)_total\{[^}]*\} [1-9]`, page(t, addr, "/metrics"))
}

func foreign(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	_, err := acl.Create(acl.Config{Dir: dir, Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	return dir
}

func foreignKey(t *testing.T) string { t.Helper(); return filepath.Join(foreign(t), "worker.nk") }

func foreignCA(t *testing.T) string { t.Helper(); return filepath.Join(foreign(t), "ca.pem") }

// A worker process that serves one of two rewards gets that one's samples alone.
func TestAProcessServesTheRewardsThatItNames(t *testing.T) {
	t.Parallel()
	two := []string{"+rewards.small.custom_reward_function.path=builtin://jpeg_compressibility", incompressible}
	gateway, addr := start(t, append(two, "reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0", "++queue.name=gw")...)
	nats := "nats://" + gateway.NATS()
	joinAs(t, "one", nats, append(two, "++queue.rewards=[default]")...)
	joinAs(t, "two", nats, append(two, "++queue.rewards=[small]")...)
	for i := range 20 {
		s := noisy(fmt.Sprint(i), 8)
		s.Reward = []string{"default", "small"}[i%2]
		res := submit(t, addr, s)[0]
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		assert.True(t, strings.HasPrefix(res.Worker, []string{"one-", "two-"}[i%2]), res.Worker)
	}
	var state struct{ Workers []wire.WorkerInfo }
	require.NoError(t, json.Unmarshal([]byte(page(t, addr, "/v1/workers")), &state))
	require.Len(t, state.Workers, 4)
	for _, w := range state.Workers {
		assert.NotEmpty(t, w.Profiles)
		assert.NotEmpty(t, w.Host)
		assert.Equal(t, "test", w.Version)
	}
}

// A worker that leaves finishes what it has, and the gateway hears of it; one that joins
// in the middle of a run takes its share.
func TestWorkersComeAndGoWhileSamplesAreScored(t *testing.T) {
	t.Parallel()
	gateway, addr := start(t, incompressible, "reward.num_workers=0", "++queue.nats_listen=127.0.0.1:0", "++queue.name=gw")
	nats := "nats://" + gateway.NATS()
	first := joinAs(t, "first", nats, incompressible)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "r"})
	require.NoError(t, err)
	defer c.Close()
	var futures []*client.Future
	for i := range 400 {
		s := noisy(fmt.Sprint(i), 64)
		f, err := c.Submit(t.Context(), &s, 0)
		require.NoError(t, err)
		futures = append(futures, f)
		switch i {
		case 100:
			_, err := futures[0].Wait(t.Context()) // the first has begun
			require.NoError(t, err)
			joinAs(t, "second", nats, incompressible)
		case 200:
			require.NoError(t, first.Drain(t.Context()))
			first.Stop()
		}
	}
	by := map[string]int{}
	for _, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		require.Equal(t, 1, res.Attempts, "a drained worker loses nothing")
		by[strings.Split(res.Worker, "-")[0]]++
	}
	assert.Positive(t, by["first"])
	assert.Positive(t, by["second"])
	require.Eventually(t, func() bool {
		return !strings.Contains(page(t, addr, "/v1/workers"), "first") || strings.Contains(page(t, addr, "/v1/workers"), "draining")
	}, 10*time.Second, 10*time.Millisecond)
}
