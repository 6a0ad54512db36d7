package remote

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// Where cosmos-rl's reward service listens, and the header that brings a request
// to the server that has the result, where several stand behind one address.
const (
	cosmosEnqueue = "/api/reward/enqueue"
	cosmosPull    = "/api/reward/pull"
	cosmosReplica = "X-Lepton-Replica-Target"
)

// The pause between two looks for a result doubles from the first to the last.
const (
	firstPull = 200 * time.Millisecond
	lastPull  = 2 * time.Second
)

// cosmosProtocol speaks to cosmos-rl's reward service: the picture is handed in,
// and the result asked for until it is there. The service says neither that a
// result was lost nor that it never will be, so that the component's deadline decides.
type cosmosProtocol struct {
	prompt service.Source
	video  string
	reward string
	keys   []string // of the scores that are added; none: the only one
	extras []column
	header http.Header
}

func newCosmos(o *options) *cosmosProtocol {
	c := &cosmosProtocol{reward: o.Reward, video: o.Video, extras: columns(o.Extras), header: o.RequestHeader("")}
	c.prompt, _ = service.ParseSource(o.Prompt) // validate has read it
	if o.ScoreKey != "" {
		c.keys = strings.Split(o.ScoreKey, "+")
	}
	return c
}

// item makes the body: a line of JSON and the picture as NPY, uint8 [1,H,W,3].
func (c *cosmosProtocol) item(ctx context.Context, s *rewards.Sample) (item, error) {
	prompt, err := textOf(c.prompt, s)
	if err != nil {
		return item{}, err
	}
	m, err := s.Visual()
	if err != nil {
		return item{}, err
	}
	if m.Kind == rewards.Video && c.video != "first_frame" {
		return item{}, fmt.Errorf("%w: the sample is a video, but the service accepts only images; write video: first_frame to send the first frame", rewards.BadInput)
	}
	line := dict(
		"media_type", "image", "prompts", &pickle.List{Items: []pickle.Value{prompt}},
		"reward_fn", dict(c.reward, 1.0),
	)
	var it item
	err = decoded(ctx, m, rewards.FirstFrame(), func(px rewards.View) error {
		if px.Count < 1 {
			return fmt.Errorf("%w: a video without a frame", rewards.BadInput)
		}
		it.body = appendNPY(append(appendJSON(nil, line), '\n'), px.Bytes(0), px.Height, px.Width)
		return nil
	})
	return it, err
}

// appendNPY writes version 1.0 of NumPy's file format, whose header ends at a
// multiple of 64 bytes from its own beginning.
func appendNPY(b, rgb []byte, height, width int) []byte {
	header := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (1, %d, %d, 3), }", height, width)
	const before = 6 + 2 + 2 // magic, version, length
	pad := 63 - (before+len(header))%64
	header += strings.Repeat(" ", pad) + "\n"
	b = append(b, "\x93NUMPY\x01\x00"...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	return append(append(b, header...), rgb...)
}

func (c *cosmosProtocol) call(its []item) (*outbound.Call, error) {
	h := c.header.Clone()
	h.Set("Content-Type", "application/octet-stream")
	return &outbound.Call{Path: cosmosEnqueue, Header: h, Body: its[0].body}, nil
}

// exchange hands the sample in and waits for its result.
func (c *cosmosProtocol) exchange(ctx context.Context, doer outbound.Doer, its []item) ([]verdict, *outbound.Answer, error) {
	call, err := c.call(its)
	if err != nil {
		return nil, nil, err
	}
	var ticket, replica string
	_, err = do(ctx, doer, call, func(body []byte) (err error) {
		ticket, replica, err = readTicket(body)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("enqueue: %w", err)
	}
	a, err := c.pull(ctx, doer, ticket, replica)
	if err != nil {
		return nil, nil, err
	}
	out, err := c.read(a.Body, its)
	return out, a, err
}

// readTicket reads the answer to enqueue.
func readTicket(body []byte) (ticket, replica string, err error) {
	d, err := decodeDict(decodeJSON, body)
	if err != nil {
		return "", "", err
	}
	v, _ := d.Get("uuid")
	ticket, _ = v.(string)
	if ticket == "" || len(ticket) > 256 {
		return "", "", fmt.Errorf("%w: the answer to enqueue has no uuid: %s", rewards.InvalidScore, service.Quote(body))
	}
	if v, _ := d.Get("replica_id"); v != nil {
		replica, _ = v.(string)
		if err := service.CheckHeader(cosmosReplica, replica); err != nil {
			return "", "", fmt.Errorf("%w: replica_id: %w", rewards.InvalidScore, err)
		}
	}
	return ticket, replica, nil
}

// pull asks for the result until it is there or ctx ends. A status of 400 means
// that it is not there yet.
func (c *cosmosProtocol) pull(ctx context.Context, doer outbound.Doer, ticket, replica string) (*outbound.Answer, error) {
	h := c.header.Clone()
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	if replica != "" {
		h.Set(cosmosReplica, replica)
	}
	form := []byte(url.Values{"uuid": {ticket}, "type": {c.reward}}.Encode())
	for pause := firstPull; ; pause = min(2*pause, lastPull) {
		call := &outbound.Call{
			Path: cosmosPull, Header: h, Body: form, MaxBytes: maxAnswer,
			Statuses: explained, Check: func(a *outbound.Answer) error { return nil },
		}
		a, err := doer.Do(ctx, call)
		switch {
		case err != nil:
			return nil, fmt.Errorf("pull: %w", err)
		case a.Status/100 == 2:
			return a, nil
		case a.Status != http.StatusBadRequest:
			return nil, refusal(a)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, rewards.Ended(ctx, true, rewards.BlameDependency,
				fmt.Errorf("%s has not scored %s: %w", a.Endpoint, service.Clip(ticket, 64), ctx.Err()))
		}
	}
}

// read takes the scores of the reward: lists of one number each.
func (c *cosmosProtocol) read(body []byte, its []item) ([]verdict, error) {
	d, err := decodeDict(decodeJSON, body)
	if err != nil {
		return nil, err
	}
	v, _ := d.Get("scores")
	scores, ok := v.(*pickle.Dict)
	if !ok {
		return nil, fmt.Errorf("%w: the answer has no scores; the answer has %s", rewards.InvalidScore, names(d))
	}
	keys := c.keys
	if len(keys) == 0 {
		if len(scores.Items) != 1 {
			return nil, fmt.Errorf("%w: the service returns several scores, %s; name one in score_key", rewards.InvalidScore, names(scores))
		}
		key, _ := scores.Items[0].Key.(string)
		keys = []string{key}
	}
	out := make([]verdict, len(its))
	for _, key := range keys {
		l, err := listOf(scores, key, len(its))
		if err != nil {
			return nil, err
		}
		for i, v := range verdicts(l) {
			out[i].score.Value += v.score.Value
			if out[i].err == nil {
				out[i].err = v.err
			}
		}
	}
	return out, columnLists(scores, c.extras, out)
}

func (c *cosmosProtocol) fields() []rewards.Field { return fieldsOf(c.extras) }
