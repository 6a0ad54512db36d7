package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	stdjpeg "image/jpeg"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// tally counts results and the time between them, from open to close.
type tally struct {
	mu             sync.Mutex
	isOpen         bool      // guarded by mu, as all that follows
	opened, last   time.Time // last is when the latest result came, or the tally was opened
	gap            time.Duration
	scored, failed int
	took           time.Duration
	// Over the whole load, whether the tally was open or not.
	all, allFailed int
	quote          string // the errors of the first failed sample
	told           int    // failures whose message has the text that was looked for
}

// open begins to count.
func (t *tally) open(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isOpen, t.opened, t.last = true, now, now
}

// close ends the counting, once. A gap that is still open counts until now.
func (t *tally) close(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOpen {
		return
	}
	t.isOpen, t.took = false, now.Sub(t.opened)
	t.gap = max(t.gap, now.Sub(t.last))
}

// result counts one.
func (t *tally) result(now time.Time, res *wire.Result, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := res.Outcome != rewards.Scored
	t.all++
	if failed {
		t.allFailed++
		said := fmt.Sprintf("%s: %v", res.Outcome, res.Errors)
		if t.quote == "" {
			t.quote = said
		}
		if text != "" && bytes.Contains([]byte(said), []byte(text)) {
			t.told++
		}
	}
	if !t.isOpen {
		return
	}
	t.gap, t.last = max(t.gap, now.Sub(t.last)), now
	if failed {
		t.failed++
	} else {
		t.scored++
	}
}

// failures are those so far.
func (t *tally) failures() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.allFailed
}

// perSecond is how many results came in a second of the time that the tally was open.
func (t *tally) perSecond() float64 {
	if t.took <= 0 {
		return 0
	}
	return float64(t.scored+t.failed) / t.took.Seconds()
}

// isolationLoad keeps a number of samples in flight.
type isolationLoad struct {
	run, reward string
	inFlight    int
	sample      func(i int64) rewards.Sample
	// cancelAfter takes each sample back so long after it was sent, every second one up to
	// stormWait later, when it has reached its process on a busy machine, too; 0: none is.
	cancelAfter time.Duration
	// text is looked for in the errors of failed samples.
	text string
	// patience is how long samples that are in flight at the end are waited for.
	patience time.Duration
	// takeBack takes those samples back first.
	takeBack bool
}

// with gives each sample media.
func (l isolationLoad) with(media ...*rewards.Media) isolationLoad {
	of := l.sample
	l.sample = func(i int64) rewards.Sample {
		s := of(i)
		s.Media = media
		return s
	}
	return l
}

// loading is an isolationLoad under way.
type loading struct {
	tally

	load     isolationLoad
	client   *client.Client
	ids      atomic.Int64
	stopping chan struct{}
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	// sending lets one sample at a time wait for room in the client, which looks every 5 ms;
	// noMore ends that. sent are the ids of those without a result.
	sending sync.Mutex
	noMore  context.CancelFunc
	sent    sync.Map

	unanswered atomic.Int64
	err        atomic.Pointer[error] // the first
}

// begin connects and starts to send.
func (l isolationLoad) begin(ctx context.Context, addr string) (*loading, error) {
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: l.run, Reward: l.reward})
	if err != nil {
		return nil, err
	}
	g := &loading{load: l, client: c, stopping: make(chan struct{})}
	ctx, g.cancel = context.WithCancel(ctx)
	sending, noMore := context.WithCancel(ctx)
	g.noMore = noMore
	for range l.inFlight {
		g.wg.Go(func() { // ends with stop
			for g.running() && ctx.Err() == nil {
				if err := g.one(ctx, sending); err != nil && ctx.Err() == nil && sending.Err() == nil {
					g.err.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	return g, nil
}

func (g *loading) running() bool {
	select {
	case <-g.stopping:
		return false
	default:
		return true
	}
}

// submit sends a sample, unless the load has been stopped.
func (g *loading) submit(sending context.Context, s *rewards.Sample) (*client.Future, error) {
	g.sending.Lock()
	defer g.sending.Unlock()
	if err := sending.Err(); err != nil {
		return nil, err
	}
	g.sent.Store(s.ID, true)
	return g.client.Submit(sending, s, 0)
}

// one sends a sample and waits for its result.
func (g *loading) one(ctx, sending context.Context) error {
	i := g.ids.Add(1)
	s := g.load.sample(i)
	f, err := g.submit(sending, &s)
	if err != nil {
		return err
	}
	defer g.sent.Delete(s.ID)
	if g.load.cancelAfter > 0 {
		err := sleep(ctx, g.load.cancelAfter)
		if err == nil && i%2 == 1 {
			err = pause(ctx)
		}
		if err == nil {
			err = g.client.Cancel(s.ID)
		}
		if err != nil {
			return err
		}
	}
	res, err := f.Wait(ctx)
	if err != nil {
		g.unanswered.Add(1)
		return err
	}
	g.result(time.Now(), res, g.load.text)
	return nil
}

// stop ends the load, and returns what went wrong with the connection.
func (g *loading) stop() error {
	close(g.stopping)
	if g.load.takeBack {
		g.noMore()
		g.sending.Lock() // nothing is sent from here on
		var ids []string
		g.sent.Range(func(id, _ any) bool {
			ids = append(ids, id.(string)) //nolint:forcetypeassert // submit has put it there
			return true
		})
		g.sending.Unlock()
		_ = g.client.Cancel(ids...) // where the connection is gone, so are they
	}
	late := time.AfterFunc(g.load.patience, g.cancel)
	g.wg.Wait()
	late.Stop()
	g.noMore()
	g.cancel()
	err := g.client.Close()
	if first := g.err.Load(); first != nil {
		return fmt.Errorf("%s: %w", g.load.run, *first)
	}
	return err
}

// smallPicture is a JPEG of 25 KB.
func smallPicture() ([]byte, error) {
	var b bytes.Buffer
	err := stdjpeg.Encode(&b, picture(224), &stdjpeg.Options{Quality: 95})
	return b.Bytes(), err
}

// healthyLoad is the run that nothing may disturb.
func healthyLoad(file []byte) isolationLoad {
	return isolationLoad{
		run: "healthy", inFlight: healthyInFlight,
		sample: func(i int64) rewards.Sample {
			return rewards.Sample{ID: "h" + strconv.FormatInt(i, 10), Media: []*rewards.Media{{
				Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(file)}, Data: file,
			}}}
		},
	}
}

// rawPicture has stuckPixels bytes.
func rawPicture() *rewards.Media {
	b := make([]byte, stuckPixels)
	for i := range b {
		b[i] = byte(i * i >> 7) // something that does not compress to nothing
	}
	return &rewards.Media{Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{1000, 1000, 3}, Data: b}
}

// textLoad is a run of small texts whose ground truth, and prompt, is the flag: good or bad.
func textLoad(run, reward, flag string, inFlight int) isolationLoad {
	return isolationLoad{
		run: run, reward: reward, inFlight: inFlight,
		sample: func(i int64) rewards.Sample {
			id := strconv.FormatInt(i, 10)
			truth, _ := json.Marshal(flag) // a text
			return rewards.Sample{ID: "t" + id, Prompt: flag + " " + id, Response: "an answer", GroundTruth: truth}
		},
	}
}

// stubEngine answers chat completions in the bench's process: with a score where the
// question says good, without one where it says bad.
type stubEngine struct {
	srv    *http.Server
	url    string
	served chan struct{} // closed when the listener has ended
}

// stubTakes is how long the engine takes for an answer.
const stubTakes = 20 * time.Millisecond

func newStubEngine(ctx context.Context) (*stubEngine, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &stubEngine{url: "http://" + l.Addr().String(), served: make(chan struct{})}
	e.srv = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil || sleep(r.Context(), stubTakes) != nil {
			return
		}
		answer := "I would rather not say."
		if bytes.Contains(question, []byte("good")) {
			answer = "<score>1</score>"
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"x","object":"chat.completion","model":"stub","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%q}}],`+
			`"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}`, answer)
	})}
	go func() { // ends with close
		defer close(e.served)
		_ = e.srv.Serve(l) // always an error: that of the end
	}()
	return e, nil
}

func (e *stubEngine) close() {
	_ = e.srv.Close()
	<-e.served
}

// brokenEngine is an engine with a fault; close ends it.
func brokenEngine(ctx context.Context, fault engineFault) (url string, end func(), err error) {
	if fault == closedPort {
		return "http://127.0.0.1:1", func() {}, nil // tcpmux, which nobody has
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault == silent {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		}
		http.Error(w, `{"error": {"message": "out of memory"}}`, http.StatusInternalServerError)
	})}
	served := make(chan struct{})
	go func() { // ends with close
		defer close(served)
		_ = srv.Serve(l) // always an error: that of the end
	}()
	return "http://" + l.Addr().String(), func() {
		_ = srv.Close()
		<-served
	}, nil
}
