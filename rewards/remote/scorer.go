package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// item is what one sample sends. It shares no byte with the sample: in a batch it
// may be read after Score has returned.
type item struct {
	prompt   string
	response string
	truth    pickle.Value // the ground truth as a tree; nil: none
	metadata pickle.Value // nil: none
	picture  []byte       // the result as a file
	source   []byte       // the picture an edit began from
	frames   [][]byte     // of a video, as files
	body     []byte       // the whole request, of a protocol without lists
}

// protocol makes requests of items and reads the answers. It holds no state and is
// used by any number of goroutines.
type protocol interface {
	// item readies what one sample sends; pictures are encoded here, by the sample's
	// own goroutine.
	item(ctx context.Context, s *rewards.Sample) (item, error)
	// call makes one request of one item or, of a protocol with lists, of several.
	call(its []item) (*outbound.Call, error)
	// read takes an answer of status 2xx apart: a verdict per item, or why the whole of
	// it is worth nothing.
	read(body []byte, its []item) ([]verdict, error)
	// fields are the extra columns.
	fields() []rewards.Field
}

// exchanger is a protocol whose scores take more than one request.
type exchanger interface {
	exchange(ctx context.Context, doer outbound.Doer, its []item) ([]verdict, *outbound.Answer, error)
}

// scorer asks a reward service over HTTP. It is safe for concurrent use.
type scorer struct {
	protocol    protocol
	doer        outbound.Doer
	path        string // follows the address
	scale, bias float64
	batcher     *batcher // nil: every sample has its own request
}

var (
	_ rewards.Scorer       = (*scorer)(nil)
	_ rewards.ExtraFielder = (*scorer)(nil)
	_ rewards.Closer       = (*scorer)(nil)
	_ rewards.Queuer       = (*scorer)(nil)
	_ rewards.Concurrent   = (*scorer)(nil)
)

// Concurrency is how many samples the requests at a time to the service have.
func (s *scorer) Concurrency() int {
	n := rewards.ConcurrencyOf(s.doer)
	if s.batcher != nil {
		n *= s.batcher.max
	}
	return n
}

// Dependency is the service.
func (s *scorer) Dependency() rewards.Dependency { return rewards.DependencyOf(s.doer) }

// ConcurrencyReason is the service's, with the samples of a request.
func (s *scorer) ConcurrencyReason() string {
	why := rewards.ConcurrencyReason(s.doer)
	if s.batcher != nil {
		why += fmt.Sprintf(", each of up to %d samples", s.batcher.max)
	}
	return why
}

// Queues says that the component's time begins when the service is asked.
func (*scorer) Queues() {}

func newScorer(o *options, p protocol, doer outbound.Doer) *scorer {
	s := &scorer{protocol: p, doer: doer, path: pathOf(o.Protocol), scale: o.Scale, bias: o.Bias}
	if o.BatchWait > 0 && o.Batch > 1 {
		s.batcher = newBatcher(o.Batch, time.Duration(o.BatchWait), s.ask)
	}
	return s
}

// ExtraFields declares the columns.
func (s *scorer) ExtraFields() []rewards.Field { return s.protocol.fields() }

// Close ends the batches that are under way; their samples fail as Unavailable, which is
// the worker's fault.
func (s *scorer) Close() error {
	if s.batcher != nil {
		s.batcher.close()
	}
	return nil
}

// Score sends the sample, alone or with others, and returns what the service says
// of it, times score_scale plus score_bias. What fails, and how, stands in the
// README.
func (s *scorer) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	score, err := s.score(ctx, sample)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	score.Value = score.Value*s.scale + s.bias
	if !service.Finite(score.Value) {
		return rewards.Score{}, fmt.Errorf("%w: sample %q: the score overflows a float with score_scale and score_bias", rewards.InvalidScore, sample.ID)
	}
	return score, nil
}

func (s *scorer) score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	it, err := s.protocol.item(ctx, sample)
	if err != nil {
		return rewards.Score{}, err
	}
	if s.batcher != nil {
		if v := s.batcher.score(ctx, it); !v.whole {
			return v.score, v.err
		}
		// Another sample of the batch may be the cause: this one is asked for alone, once.
	}
	out, err := s.ask(ctx, []item{it})
	if err != nil {
		return rewards.Score{}, err
	}
	return out[0].score, out[0].err
}

// ask sends one request and returns a verdict per item, or the error of the whole.
func (s *scorer) ask(ctx context.Context, its []item) ([]verdict, error) {
	out, a, err := s.exchange(ctx, its)
	if err != nil {
		return nil, err
	}
	if len(out) != len(its) {
		return nil, fmt.Errorf("%w: %d scores for %d samples", rewards.InvalidScore, len(out), len(its))
	}
	for i := range out {
		if out[i].score.Details == nil {
			out[i].score.Details = map[string]any{}
		}
		out[i].score.Details["endpoint"] = a.Endpoint
		out[i].score.Details["requests"] = a.Attempts
	}
	return out, nil
}

func (s *scorer) exchange(ctx context.Context, its []item) ([]verdict, *outbound.Answer, error) {
	if e, ok := s.protocol.(exchanger); ok {
		return e.exchange(ctx, s.doer, its)
	}
	call, err := s.protocol.call(its)
	if err != nil {
		return nil, nil, err
	}
	call.Path = s.path
	var out []verdict // of the answer that was read last, which is the one that counts
	a, err := do(ctx, s.doer, call, func(body []byte) (err error) {
		out, err = s.protocol.read(body, its)
		return err
	})
	return out, a, err
}

// do sends a call whose answer of status 2xx read must be content with: if its
// complaint is of a transient class, the doer may go on to another attempt.
func do(ctx context.Context, doer outbound.Doer, call *outbound.Call, read func(body []byte) error) (*outbound.Answer, error) {
	check := func(a *outbound.Answer) error {
		if a.Status/100 != 2 {
			return refusal(a)
		}
		return read(a.Body)
	}
	call.MaxBytes, call.Statuses, call.Check = maxAnswer, explained, check
	a, err := doer.Do(ctx, call)
	if err != nil {
		return nil, err // it names endpoint, status and cause, and carries its class
	}
	if a.Status/100 != 2 {
		return nil, refusal(a)
	}
	return a, nil
}

// pathOf is where a protocol's service listens, below the address.
func pathOf(protocol string) string {
	switch protocol {
	case uniRL:
		return "/score"
	case flowFactory:
		return "/compute"
	case openRLHF:
		return "/get_reward"
	}
	return ""
}
