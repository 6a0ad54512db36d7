package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Damage is the result of scoring samples during failures.
type Damage struct {
	Samples int
	// Scored is the number of samples with the score of their own picture, Swapped of those with
	// the score of another picture, Failed of those without a score, and Lost of those without a
	// result.
	Scored, Swapped, Failed, Lost int
	// Undisturbed is the time that the same samples took without failures, Took the time with all
	// failures.
	Undisturbed, Took time.Duration
	// Down is the time for which the scorer was down.
	Down time.Duration
	// Again is the number of samples that needed another attempt, Twice the number of samples that
	// were scored twice.
	Again, Twice int
	// Killed is the name of the worker that was killed.
	Killed string
	// Neighbour is the number of samples of the neighbour that failed, NeighbourOf the number of
	// its samples, and Reason the reason of the failures.
	Neighbour, NeighbourOf int
	Reason                 string
	// Without describes the failures that could not be caused on this machine; "": none.
	Without string
	// Failures are the reasons of some of the failed samples.
	Failures []string
}

// Whole reports whether every sample has its own score.
func (d *Damage) Whole() bool { return d.Scored == d.Samples }

// DamageConfig configures Break. A field with the zero value gets its default.
type DamageConfig struct {
	// Program is the rewardloop program, which runs as the gateway and the workers.
	Program string
	// Samples is the number of samples, which use the pictures in turn. The default is 128.
	Samples int
	// Service is the time that the scorer takes for a sample. The default is 100 ms.
	Service time.Duration
	// Down is the time for which the scorer is down. The default is 3 s.
	Down time.Duration
	// Python means that functions in Python can run on this machine.
	Python bool
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c DamageConfig) WithDefaults() DamageConfig {
	if c.Samples == 0 {
		c.Samples = 128
	}
	if c.Service == 0 {
		c.Service = 100 * time.Millisecond
	}
	if c.Down == 0 {
		c.Down = 3 * time.Second
	}
	return c
}

const (
	// damageLimit bounds all of it.
	damageLimit = 2 * time.Minute
	// neighbours is how many samples the neighbour sends.
	neighbours = 32
	// scorerPlaces is how many requests are made at a time.
	scorerPlaces = 16
)

// neighbourFile is the neighbour's function. It takes texts: for pictures it would need NumPy,
// which the machine's Python may lack.
const neighbourFile = `def raises(solution_str):
    raise ValueError("this function always raises")
`

// damageYAML is the configuration of all processes.
func damageYAML(scorer string, python bool) string {
	text := fmt.Sprintf(`reward:
  num_workers: 0
  reward_functions:
    checksum:
      path: http://%s
      protocol: json
      request: {id: "{id}", file: "{image_b64}"}
      score_path: score
      required: true
      image_format: jpeg
      concurrency: %d
queue: {lease: 5s}
`, scorer, scorerPlaces)
	if python {
		text += "rewards:\n  neighbour: {reward_functions: {raises: {path: neighbour.py, name: raises, required: true}}}\n"
	}
	return text
}

// Break scores pictures by an HTTP scorer, with a gateway and two workers in their own processes:
// first undisturbed, and then while a worker is killed, the scorer is down, and the function of a
// neighbour raises for each of its samples.
func Break(ctx context.Context, cfg DamageConfig, pictures []Picture) (_ *Damage, err error) {
	cfg = cfg.WithDefaults()
	ctx, cancel := context.WithTimeout(ctx, damageLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "rewardloop-demo-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &checksummer{takes: cfg.Service, scored: map[string]int{}}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	defer s.stop()
	if cfg.Python {
		err = os.WriteFile(filepath.Join(dir, "neighbour.py"), []byte(neighbourFile), 0o600)
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "demo.yaml"), []byte(damageYAML(s.addr, cfg.Python)), 0o600)); err != nil {
		return nil, err
	}
	f, err := newFleet(ctx, cfg.Program, dir)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	d := &Damage{Samples: cfg.Samples}
	if !cfg.Python {
		d.Without = "no neighbour: functions in Python do not run here"
	}
	samples := copies(pictures, cfg.Samples)
	var calm *Damage
	for _, run := range []string{"warm", "calm"} { // the first opens connections
		if calm, err = d.send(ctx, f.addr, run, samples, nil); err != nil {
			return nil, err
		}
	}
	if !calm.Whole() {
		return nil, fmt.Errorf("of %d samples %d have another score, %d failed and %d have no result although nothing was broken: %v", d.Samples, calm.Swapped, calm.Failed, calm.Lost, calm.Failures)
	}
	d.Undisturbed = calm.Took
	s.forget()
	if err := d.disturbed(ctx, cfg, f, s, samples); err != nil {
		return nil, fmt.Errorf("%w; the processes said\n%s", err, f.said())
	}
	return d, nil
}

// disturbed sends the samples again and breaks what is named in Break.
func (d *Damage) disturbed(ctx context.Context, cfg DamageConfig, f *fleet, s *checksummer, samples []rewards.Sample) error {
	var all sync.WaitGroup
	var wrong, neighbour error
	breaks := make(chan func() error, 2)
	all.Go(func() { // ends when breaks is closed
		for b := range breaks {
			wrong = errors.Join(wrong, b())
		}
	})
	if cfg.Python {
		all.Go(func() { neighbour = d.disturb(ctx, f.addr) })
	}
	got, err := d.send(ctx, f.addr, "disturbed", samples, func(n int) {
		switch n {
		case d.Samples / 4:
			breaks <- func() error {
				d.Killed = f.workers[0].name
				f.workers[0].kill()
				return f.worker(ctx) // as whoever supervises it does
			}
		case d.Samples / 2:
			breaks <- func() error {
				s.stop()
				begun := time.Now()
				if err := wait(ctx, cfg.Down); err != nil {
					return err
				}
				err := s.start(ctx)
				d.Down = time.Since(begun)
				return err
			}
		}
	})
	close(breaks)
	all.Wait()
	if err := errors.Join(err, wrong, neighbour); err != nil {
		return err
	}
	d.Scored, d.Swapped, d.Failed, d.Lost = got.Scored, got.Swapped, got.Failed, got.Lost
	d.Took, d.Again, d.Failures, d.Twice = got.Took, got.Again, got.Failures, s.twice()
	return nil
}

// wait returns after a while, or why it did not.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copies are n samples made of the pictures in turn. Each has an id of its own, by which its
// score differs from those of the same picture.
func copies(pictures []Picture, n int) []rewards.Sample {
	samples := make([]rewards.Sample, n)
	for i := range samples {
		p := pictures[i%len(pictures)]
		samples[i] = rewards.Sample{ID: fmt.Sprintf("%s-%d", p.ID, i), Prompt: p.Prompt, Media: []*rewards.Media{{
			Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(p.jpeg)}, Data: p.jpeg,
		}}}
	}
	return samples
}

// send sends samples as a run and judges the results. After tells how many results there are.
func (d *Damage) send(ctx context.Context, addr, run string, samples []rewards.Sample, after func(n int)) (*Damage, error) {
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: run})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	begun, results := time.Now(), make([]*wire.Result, len(samples))
	var mu sync.Mutex
	var waits sync.WaitGroup
	got := &Damage{Samples: len(samples)}
	n := 0
	for i := range samples {
		s := samples[i]
		f, err := c.Submit(ctx, &s, 0)
		if err != nil {
			_ = c.Close() // nobody waits for results any more
			waits.Wait()
			return nil, fmt.Errorf("sample %s: %w", s.ID, err)
		}
		waits.Go(func() { // ends with the context
			res, _ := f.Wait(ctx) // without a result it is lost
			mu.Lock()
			defer mu.Unlock()
			results[i] = res
			n++
			got.Took = time.Since(begun)
			if after != nil {
				after(n)
			}
		})
	}
	waits.Wait()
	for i, res := range results {
		got.judge(&samples[i], res)
	}
	return got, nil
}

// judge books one result.
func (d *Damage) judge(s *rewards.Sample, res *wire.Result) {
	const quoted = 3
	switch {
	case res == nil:
		d.Lost++
		return
	case res.Outcome != rewards.Scored || res.RewardScore == nil:
		d.Failed++
		if len(res.Errors) > 0 && len(d.Failures) < quoted {
			d.Failures = append(d.Failures, fmt.Sprintf("%s: %s", s.ID, res.Errors[0].Message))
		}
	case math.Abs(*res.RewardScore-checksum(s.ID, s.Media[0].Data)) > 1e-12: // a bit of a CRC is 2e-10
		d.Swapped++
	default:
		d.Scored++
	}
	if res.Attempts > 1 {
		d.Again++
	}
}

// disturb is the neighbour: it sends samples to a reward whose function raises.
func (d *Damage) disturb(ctx context.Context, addr string) error {
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "neighbour", Reward: "neighbour"})
	if err != nil {
		return err
	}
	defer c.Close()
	var futures []*client.Future
	for i := range neighbours {
		f, err := c.Submit(ctx, &rewards.Sample{ID: fmt.Sprintf("text-%d", i), Response: "an answer"}, 0)
		if err != nil {
			return err
		}
		futures = append(futures, f)
	}
	d.NeighbourOf = len(futures)
	for _, f := range futures {
		res, err := f.Wait(ctx)
		if err != nil {
			return fmt.Errorf("the neighbour's sample %s: %w", f.ID, err)
		}
		if res.Outcome == rewards.Failed && len(res.Errors) > 0 {
			d.Neighbour++
			d.Reason = fmt.Sprintf("blame %s: %s", res.Errors[0].Blame, res.Errors[0].Message)
		}
	}
	return nil
}

// checksum is the score of a sample: the CRC-32C of its id and its picture as a fraction,
// which a float64 and JSON hold exactly.
func checksum(id string, file []byte) float64 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return float64(crc32.Update(crc32.Checksum([]byte(id), table), table, file)) / (math.MaxUint32 + 1)
}

// checksummer is the HTTP scorer. It can be down and come back at its address.
type checksummer struct {
	takes time.Duration

	mu     sync.Mutex
	addr   string         // guarded by mu
	srv    *http.Server   // nil while it is down; guarded by mu
	served chan struct{}  // closed when srv has ended; guarded by mu
	scored map[string]int // how often, by id; guarded by mu
}

// start listens, where it has listened before.
func (s *checksummer) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr := s.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("the demo's scorer: %w", err)
	}
	srv, served := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}, make(chan struct{})
	s.addr, s.srv, s.served = l.Addr().String(), srv, served
	go func() { // ends with stop
		defer close(served)
		_ = srv.Serve(l)
	}()
	return nil
}

// stop ends the listener and all connections, as the end of a process does.
func (s *checksummer) stop() {
	s.mu.Lock()
	srv, served := s.srv, s.served
	s.srv = nil
	s.mu.Unlock()
	if srv != nil {
		_ = srv.Close()
		<-served
	}
}

// ServeHTTP implements http.Handler: {"id": …, "file": base64} is scored after a while.
func (s *checksummer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		ID   string `json:"id"`
		File []byte `json:"file"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 2*maxPictureBytes)).Decode(&q); err != nil || q.ID == "" {
		http.Error(w, "want an id and a file", http.StatusBadRequest)
		return
	}
	if wait(r.Context(), s.takes) != nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"score":%s}`, strconv.FormatFloat(checksum(q.ID, q.File), 'g', -1, 64))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scored[q.ID]++
}

// forget forgets what it has scored.
func (s *checksummer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.scored)
}

// twice is how many samples it has scored more than once.
func (s *checksummer) twice() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.scored {
		if times > 1 {
			n++
		}
	}
	return n
}
