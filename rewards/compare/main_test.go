package compare_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"image"
	_ "image/jpeg" // the fake judge looks at what it is shown
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/compare"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// judge is a fake engine. It answers what verdict says of a question, and calls Accept as
// a chat client does.
type judge struct {
	verdict func(q question) (string, error)

	mu       sync.Mutex
	asked    []question
	now, top int // questions under way, and the most of them at once
}

// question is what a judge is shown.
type question struct {
	text     string
	a, b     string   // of a pair: what stands under the headings
	list     []string // of a list
	pictures []image.Image
	attempt  int
	request  *chat.Request
}

var (
	sideA    = regexp.MustCompile(`(?s)## Candidate A\n(.*?)\n\n## Candidate B\n(.*?)\n\n## Your task`)
	numbered = regexp.MustCompile(`(?m)^## Candidate \d+\n(.*)$`)
)

func parse(r *chat.Request) (question, error) {
	q := question{attempt: r.Attempt, request: r}
	for _, p := range r.Messages[len(r.Messages)-1].Parts {
		switch {
		case p.Image == nil:
			q.text = p.Text
		case q.text != "":
			return q, fmt.Errorf("%w: a picture after the text", rewards.Internal)
		default:
			img, _, err := image.Decode(bytes.NewReader(p.Image))
			if err != nil {
				return q, err
			}
			q.pictures = append(q.pictures, img)
		}
	}
	if m := sideA.FindStringSubmatch(q.text); m != nil {
		q.a, q.b = m[1], m[2]
	}
	for _, m := range numbered.FindAllStringSubmatch(q.text, -1) {
		q.list = append(q.list, m[1])
	}
	return q, nil
}

func (j *judge) Chat(ctx context.Context, r *chat.Request) (*chat.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q, err := parse(r)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	j.asked = append(j.asked, q)
	j.now++
	j.top = max(j.top, j.now)
	j.mu.Unlock()
	defer func() { j.mu.Lock(); j.now--; j.mu.Unlock() }()
	text, err := j.verdict(q)
	if err != nil {
		return nil, err
	}
	reply := &chat.Reply{Text: text}
	return reply, r.Accept(*reply)
}

func (j *judge) questions() []question {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asked
}

// quality is the number at the end of a response: "answer 7".
func quality(response string) float64 {
	v, err := strconv.ParseFloat(response[strings.LastIndex(response, " ")+1:], 64)
	if err != nil {
		panic(err)
	}
	return v
}

// fair prefers the higher quality.
func fair(q question) (string, error) { return prefers(quality(q.a) - quality(q.b)), nil }

func prefers(a float64) string {
	switch {
	case a > 0:
		return "I see.\n<result>A</result>"
	case a < 0:
		return "<result> b </result>"
	}
	return "<result>Tie</result>"
}

// noisy prefers the higher quality, with a bonus for the first place and a noise that is
// the same whenever the same question is asked.
func noisy(bonus, noise float64) func(question) (string, error) {
	return func(q question) (string, error) {
		h := fnv.New64a()
		_, _ = h.Write([]byte(q.a + "|" + q.b))
		r := rand.New(rand.NewPCG(h.Sum64(), 1))
		return prefers(quality(q.a) - quality(q.b) + bonus + noise*r.NormFloat64()), nil
	}
}

// orders ranks a list by quality.
func orders(q question) (string, error) {
	left := make([]float64, len(q.list))
	for i, r := range q.list {
		left[i] = quality(r)
	}
	var numbers []string
	for range left {
		best := 0
		for i, v := range left {
			if v > left[best] {
				best = i
			}
		}
		numbers = append(numbers, strconv.Itoa(best+1))
		left[best] = -1e9
	}
	return "<ranking>" + strings.Join(numbers, ", ") + "</ranking>", nil
}

func clients(j chat.Chatter) chat.Clients {
	return chat.ClientsFunc(func(chat.Endpoint) (chat.Chatter, error) { return j, nil })
}

func build(t *testing.T, j chat.Chatter, name, options string) rewards.GroupScorer {
	t.Helper()
	s, err := registry(clients(j)).BuildGroup(name, json.RawMessage(options))
	require.NoError(t, err)
	return s
}

func registry(c chat.Clients) *rewards.Registry {
	var reg rewards.Registry
	for _, s := range compare.Specs(c) {
		reg.Register(s)
	}
	return &reg
}

// group makes members s0, s1, … with these qualities.
func group(qualities ...float64) *rewards.Group {
	g := &rewards.Group{UID: "u1", Split: rewards.Train, Size: len(qualities)}
	for i, q := range qualities {
		g.Members = append(g.Members, rewards.Member{Sample: &rewards.Sample{
			ID: "s" + strconv.Itoa(i), UID: "u1", Prompt: "Say a number.", Response: "answer " + strconv.FormatFloat(q, 'g', -1, 64),
		}})
	}
	return g
}

// scores are those of a group of which every member must have one.
func scores(t *testing.T, s rewards.GroupScorer, g *rewards.Group) []float64 {
	t.Helper()
	got, err := s.ScoreGroup(t.Context(), g)
	require.NoError(t, err)
	require.Len(t, got, len(g.Members))
	values := make([]float64, len(got))
	for i, m := range got {
		require.NoError(t, m.Err, "member %d", i)
		values[i] = m.Score.Value
	}
	return values
}

// shade is a decoder of pictures that are all of one grey, a frame a shade lighter than
// the one before.
type shade struct {
	grey, frames int
	side         int // 0: 8
	err          error
	panics       bool
}

func (s shade) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	if s.panics {
		panic("a broken table")
	}
	if s.err != nil {
		return nil, s.err
	}
	side := cmp.Or(s.side, 8)
	frame := side * side * 3
	rgb := make([]byte, s.frames*frame)
	for i := range rgb {
		rgb[i] = byte(s.grey + i/frame)
	}
	if side > 8 { // something for a JPEG to describe
		for i := range rgb {
			rgb[i] ^= byte(mix(uint64(i/3/8))) & 31
		}
	}
	return &rewards.Pixels{Width: side, Height: side, Count: s.frames, RGB: rgb}, nil
}

// shown makes members of pictures; a video where a decoder has several frames.
func shown(decoders ...shade) *rewards.Group {
	g := group(make([]float64, len(decoders))...)
	for i, d := range decoders {
		m := &rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw}
		if d.frames > 1 {
			m.Kind = rewards.Video
		}
		m.SetDecoder(d)
		g.Members[i].Sample.Response, g.Members[i].Sample.Media = "", []*rewards.Media{m}
	}
	return g
}

// mix scatters numbers, so that a picture has something in it.
func mix(x uint64) uint64 { return x * 0x9e3779b97f4a7c15 >> 40 }

func grey(img image.Image) float64 {
	r, _, _, _ := img.At(0, 0).RGBA()
	return float64(r >> 8)
}
