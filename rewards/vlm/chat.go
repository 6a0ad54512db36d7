package vlm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

const (
	// usualAnswer is the longest answer, in tokens, to a request that does not say.
	usualAnswer = 512
	// keepTokens bounds the tokens whose log probabilities a reply has, as in a
	// chat.Reply of an engine.
	keepTokens = 16
	// maxPictures bounds the pictures of one request: the most frames that the scorers
	// of rewards/judge show at once.
	maxPictures = 384
	// refusedEntries and refusedBytes bound the replies remembered for those who ask
	// again.
	refusedEntries = 64
	refusedBytes   = 4 << 20
)

// Chat answers a request like an engine, so that the scorers of rewards/judge can use a Judge. It
// always chooses the most probable token: a Temperature other than 0 is refused, and Seed and TopP
// have no effect. If Accept refused a reply, a repeated request (Attempt) gets the same reply
// immediately, because the model would return the same text again.
//
// Errors wrap a rewards.Class: BadInput for a picture that cannot be decoded and for a question
// that exceeds the model's context, Internal for a request that a local judge cannot answer, and
// the classes of Judge.Warm and of Accept.
func (j *Judge) Chat(ctx context.Context, r *chat.Request) (*chat.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, rewards.Ended(ctx, false, rewards.BlameReward, fmt.Errorf("before asking: %w", err))
	}
	if err := j.check(r); err != nil {
		return nil, rewards.Permanent(rewards.BlameDependency, fmt.Errorf("%w: a local judge cannot answer the chat request: %w", rewards.Internal, err))
	}
	key := digest(r)
	if r.Attempt > 0 {
		if reply, ok := j.refused.Peek(key); ok {
			reply.Cached = true
			return j.accepted(r, &reply, key)
		}
	}
	var reply *chat.Reply
	err := rewards.Guard(func() (err error) { reply, err = j.chat(ctx, r); return err })
	if err != nil {
		return nil, fmt.Errorf("vlm: %s: %w", j.model.name, localmodel.Classify(ctx, err))
	}
	return j.accepted(r, reply, key)
}

// accepted asks the caller whether the reply is right, and remembers one that is not.
func (j *Judge) accepted(r *chat.Request, reply *chat.Reply, key string) (*chat.Reply, error) {
	if r.Accept == nil {
		return reply, nil
	}
	if err := r.Accept(*reply); err != nil {
		j.refused.Put(key, *reply)
		return nil, err //nolint:wrapcheck // the caller's own
	}
	return reply, nil
}

// check names everything in a request that this judge does not do.
func (j *Judge) check(r *chat.Request) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t := r.Temperature; t != nil && *t != 0 {
		fault("temperature: %v; the model always chooses the likeliest token, so set temperature: 0", *t)
	}
	if r.ResponseFormat != nil {
		fault("response_format: the model cannot enforce a schema; leave schema out")
	}
	if len(r.Extra) > 0 {
		fault("extra_body: unknown parameters %s", strings.Join(slices.Sorted(maps.Keys(r.Extra)), ", "))
	}
	if r.Model != "" {
		if folder, err := j.deps.folder(r.Model); err != nil || folder != j.model.key.folder {
			fault("model: %q, but the loaded model is %q; leave model out", r.Model, j.model.name)
		}
	}
	if r.MaxTokens < 0 || r.MaxTokens > infer.MaxNew {
		fault("max_tokens: %d, want 0 (%d) to %d", r.MaxTokens, usualAnswer, infer.MaxNew)
	}
	if r.TopLogprobs < 0 || r.TopLogprobs > infer.MaxTop || (r.TopLogprobs > 0 && !r.Logprobs) {
		fault("top_logprobs: %d, want 0 to %d, together with logprobs", r.TopLogprobs, infer.MaxTop)
	}
	if len(r.Messages) == 0 {
		fault("the request has no messages")
	}
	for i, m := range r.Messages {
		if m.Role != chat.System && m.Role != chat.User && m.Role != chat.Assistant {
			fault("message %d: role %q, want system, user or assistant", i, m.Role)
		}
		if len(m.Parts) == 0 {
			fault("message %d: no parts", i)
		}
	}
	if n := shownIn(r); n > maxPictures {
		fault("the request has %d pictures, want at most %d", n, maxPictures)
	}
	if shownIn(r) > 0 && j.deps.Decoder == nil {
		fault("the request has pictures, but the process has no decoder")
	}
	return errors.Join(errs...)
}

// chat asks the model.
func (j *Judge) chat(ctx context.Context, r *chat.Request) (*chat.Reply, error) {
	l, err := j.model.load(ctx)
	if err != nil {
		return nil, err
	}
	if shownIn(r) > 0 {
		leave, err := l.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	turns := make([]turn, 0, len(r.Messages))
	var views []*view
	for i, m := range r.Messages {
		t := turn{Role: m.Role}
		for k, p := range m.Parts {
			if p.Image == nil {
				t.Parts = append(t.Parts, part{Text: p.Text})
				continue
			}
			v, err := j.decode(ctx, l, p)
			if err != nil {
				return nil, fmt.Errorf("message %d, part %d: %w", i, k, err)
			}
			if views, err = l.with(views, v); err != nil {
				return nil, err
			}
			t.Parts = append(t.Parts, part{Image: true})
		}
		turns = append(turns, t)
	}
	o, err := j.put(ctx, l, inquiry{turns: func(int) []turn { return turns }}, views)
	if err != nil {
		return nil, err
	}
	most := r.MaxTokens
	if most == 0 {
		most = min(usualAnswer, l.context-len(o.prompt.ids))
	}
	a, err := l.say(ctx, "chat", o.prompt, o.seen, most, r.TopLogprobs)
	if err != nil {
		return nil, err
	}
	return l.reply(r, o.prompt, a)
}

// decode decodes a picture of a message.
func (j *Judge) decode(ctx context.Context, l *loaded, p chat.Part) (*view, error) {
	encoding, ok := map[string]rewards.Encoding{"image/png": rewards.PNG, "image/jpeg": rewards.JPEG, "image/webp": rewards.WebP}[p.MIME]
	if !ok {
		return nil, fmt.Errorf("%w: a picture of type %q, want image/png, image/jpeg or image/webp", rewards.BadInput, p.MIME)
	}
	m := &rewards.Media{Kind: rewards.Image, Encoding: encoding, Data: p.Image, DType: "U8", Shape: []int{len(p.Image)}}
	m.SetDecoder(j.deps.Decoder)
	defer m.Forget()
	px, giveBack, err := m.Borrow(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names format and class
	}
	defer giveBack()
	return j.look(l, px, 0)
}

// shownIn is how many pictures a request has.
func shownIn(r *chat.Request) int {
	n := 0
	for _, m := range r.Messages {
		for _, p := range m.Parts {
			if p.Image != nil {
				n++
			}
		}
	}
	return n
}

// reply is an answer as an engine gives it.
func (l *loaded) reply(r *chat.Request, p encoded, a answer) (*chat.Reply, error) {
	reply := &chat.Reply{
		Text: a.text, FinishReason: "length",
		Usage: chat.Usage{PromptTokens: int64(len(p.ids)), CompletionTokens: int64(len(a.tokens))},
	}
	if a.stopped {
		reply.FinishReason = "stop"
	}
	if !r.Logprobs {
		return reply, nil
	}
	for i, id := range a.tokens[:min(len(a.tokens), keepTokens)] {
		t, err := l.said(id, a.logprobs[i])
		if err != nil {
			return nil, err
		}
		if i < len(a.top) {
			for _, alt := range a.top[i] {
				other, err := l.said(alt.id, alt.logprob)
				if err != nil {
					return nil, err
				}
				t.Top = append(t.Top, other)
			}
		}
		reply.Logprobs = append(reply.Logprobs, t)
	}
	return reply, nil
}

// said is a token and how likely it was. Float32 may round a probability of 1 up.
func (l *loaded) said(id int64, logprob float32) (chat.Token, error) {
	text, err := l.tokenizer.Decode([]int64{id}, false)
	if err != nil {
		return chat.Token{}, fmt.Errorf("%w: token %d: %w", rewards.Internal, id, err)
	}
	return chat.Token{Text: text, Logprob: min(float64(logprob), 0)}, nil
}

// digest tells one request from another: what is asked, and how long the answer may be.
func digest(r *chat.Request) string {
	var b bytes.Buffer
	write := func(p []byte) {
		_ = binary.Write(&b, binary.LittleEndian, uint64(len(p))) // a buffer never fails
		b.Write(p)
	}
	for _, m := range r.Messages {
		write([]byte(m.Role))
		_ = binary.Write(&b, binary.LittleEndian, uint64(len(m.Parts)))
		for _, p := range m.Parts {
			sum := sha256.Sum256(p.Image)
			write([]byte(p.Text))
			write(sum[:])
		}
	}
	fmt.Fprint(&b, r.MaxTokens, r.Logprobs, r.TopLogprobs)
	sum := sha256.Sum256(b.Bytes())
	return string(sum[:])
}
