package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// storeTrial has a server that keeps results and one that does not.
type storeTrial struct {
	on, off *storeSide
	media   []*rewards.Media
	texts   []string // responses of some 1 KB
	prompts []string
	lasting time.Duration
}

// storeSide is one of the two.
type storeSide struct {
	deployment *deployment
	clients    []*client.Client
	sent       atomic.Int64
	samples    int
	took, cpu  time.Duration
}

func newStoreTrial(ctx context.Context, o Options, pictures []string) (_ Trial, err error) {
	root, err := report.Repository()
	if err != nil {
		return nil, err
	}
	t := &storeTrial{lasting: o.Lasting}
	words := storeWords()
	for range 512 {
		t.texts = append(t.texts, words(200))
		t.prompts = append(t.prompts, words(30))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for _, name := range pictures {
		data, err := os.ReadFile(filepath.Join(root, "testdata", "golden", "ocr", name))
		if err != nil {
			return nil, err
		}
		t.media = append(t.media, &rewards.Media{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(data)}, Data: data})
	}
	if t.off, err = newStoreSide(ctx, root, `{keep: "off"}`); err != nil {
		return nil, err
	}
	t.on, err = newStoreSide(ctx, root, "{path: kept.db, bytes: 16GiB}")
	return t, err
}

func newStoreSide(ctx context.Context, root, section string) (*storeSide, error) {
	s := &storeSide{}
	var err error
	s.deployment, err = deploy(ctx, root, layout{name: "embedded"}, rewardSetting{yaml: "reward: {custom_reward_function: {path: \"builtin://length\"}}\nstore: " + section + "\n"})
	for i := 0; err == nil && i < storeLanes; i++ {
		var c *client.Client
		if c, err = client.Dial(ctx, client.Config{URL: "ws://" + s.deployment.addr, Run: "kept", Client: "c" + strconv.Itoa(i)}); err == nil {
			s.clients = append(s.clients, c)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// Measure implements Trial.
func (t *storeTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	sides := []*storeSide{t.off, t.on}
	for _, s := range sides { // fills the pools of buffers
		s.samples, s.took, s.cpu = 0, 0, 0
		if err := t.load(ctx, s, t.lasting/4); err != nil {
			return nil, err
		}
		s.samples, s.took, s.cpu = 0, 0, 0
	}
	before, err := t.on.settled(ctx)
	if err != nil {
		return nil, err
	}
	begun, machine, own := time.Now(), cputime.Machine(), cputime.Own()
	var settled time.Duration // the longest
	turns := storeTurns
	if len(t.media) > 0 {
		turns = storePictureTurns
	}
	for turn := range 2 * turns {
		s := sides[(turn+(turn/2)+rep)%2] // off, then on twice, then off
		if err := t.load(ctx, s, t.lasting/time.Duration(turns)); err != nil {
			return nil, err
		}
		if s == t.on { // what waits is not written in the other one's time
			at := time.Now()
			if _, err := s.settled(ctx); err != nil {
				return nil, err
			}
			settled = max(settled, time.Since(at))
		}
	}
	after, err := t.on.settled(ctx)
	if err != nil {
		return nil, err
	}
	both := t.on.cpu + t.off.cpu
	r["foreign_cores"] = max(0, (cputime.Machine()-machine-(cputime.Own()-own)-both).Seconds()/time.Since(begun).Seconds())
	for name, s := range map[string]*storeSide{"on": t.on, "off": t.off} {
		r[name+"_per_s"] = float64(s.samples) / s.took.Seconds()
		r[name+"_cpu_ms"] = s.cpu.Seconds() * 1e3 / float64(s.samples)
	}
	grown := func(name string) float64 { return after[name] - before[name] }
	r["written_per_s"] = grown("rewardloop_store_results_written_total") / t.on.took.Seconds()
	r["settled_ms"] = settled.Seconds() * 1e3
	r["left_out"] = after[`rewardloop_store_dropped_total{what="result"}`] + float64(t.on.samples) - grown("rewardloop_store_results_written_total")
	r["rows"] = after["rewardloop_store_results"]
	r["pictures_left_out"] = grown(`rewardloop_store_dropped_total{what="picture"}`) / float64(t.on.samples)
	r["thumbnails_per_s"] = grown(`rewardloop_store_thumbnails_total{outcome="made"}`) / time.Since(begun).Seconds()
	return r, nil
}

// load keeps a side busy, and adds what came of it.
func (t *storeTrial) load(ctx context.Context, s *storeSide, lasting time.Duration) error {
	before := s.deployment.use()
	o, err := closedLoop(ctx, func(ctx context.Context, lane int) error { return t.send(ctx, s, lane) }, storeLanes, storeWindow, lasting)
	if err != nil {
		return errors.Join(err, s.deployment.ended())
	}
	s.samples += o.samples
	s.took += o.took
	s.cpu += s.deployment.use().Processes - before.Processes
	return nil
}

// storeWords returns a function that makes a text of so many words, the same ones each time. Their frequencies are as in a language
// (Zipf's law over 5,000 words), so that the text can be compressed about as well as one.
func storeWords() func(n int) string {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it must repeat
	vocabulary := make([]string, 5000)
	for i := range vocabulary {
		word := make([]byte, 2+r.IntN(7))
		for j := range word {
			word[j] = "etaoinshrdlucmfwypvbgkqjxz"[min(r.IntN(26), r.IntN(26))]
		}
		vocabulary[i] = string(word)
	}
	rank := rand.NewZipf(r, 1.1, 5, uint64(len(vocabulary)-1))
	return func(n int) string {
		text := make([]string, n)
		for i := range text {
			text[i] = vocabulary[rank.Uint64()]
		}
		return strings.Join(text, " ")
	}
}

// send sends one sample and waits for its result.
func (t *storeTrial) send(ctx context.Context, s *storeSide, lane int) error {
	n := s.sent.Add(1) - 1
	index := n % 512
	sample := &rewards.Sample{
		ID: "s" + strconv.FormatInt(n, 10), Step: n / 512, Index: &index, UID: "g" + strconv.FormatInt(n/8, 10), GroupSize: 8,
		Prompt: t.prompts[n/8%512], Response: t.texts[n%512], Media: t.media,
	}
	if len(t.media) > 0 { // a generated picture has none, and the reward wants one
		sample.Response = t.prompts[n%512]
	}
	f, err := s.clients[lane].Submit(ctx, sample, 0)
	if err != nil {
		return err
	}
	res, err := f.Wait(ctx)
	if err == nil && res.Outcome != rewards.Scored {
		err = fmt.Errorf("a sample is %s: %v", res.Outcome, res.Errors)
	}
	return err
}

// settled waits until the store has written all results and made all thumbnails, and returns the server's metrics.
func (s *storeSide) settled(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, overtime)
	defer cancel()
	for {
		m, err := s.metrics(ctx)
		if err != nil {
			return nil, err
		}
		waiting, there := m["rewardloop_store_queue_results"]
		waiting += m["rewardloop_store_queue_pictures"]
		if !there {
			return nil, errors.New("the server keeps no results")
		}
		if waiting == 0 {
			return m, nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%v results wait to be written: %w", waiting, err)
		}
	}
}

// metrics are those of the server, by name and labels.
func (s *storeSide) metrics(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.deployment.addr+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	out := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(res.Body, 16<<20))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "rewardloop_store_") {
			if out[name], err = strconv.ParseFloat(value, 64); err != nil {
				return nil, fmt.Errorf("/metrics: %s: %w", name, err)
			}
		}
	}
	return out, lines.Err()
}

func (s *storeSide) close() {
	for _, c := range s.clients {
		_ = c.Close() // all of its results are there
	}
	if s.deployment != nil {
		s.deployment.close()
	}
}

// Close implements Trial.
func (t *storeTrial) Close() error {
	for _, s := range []*storeSide{t.on, t.off} {
		if s != nil {
			s.close()
		}
	}
	return nil
}
