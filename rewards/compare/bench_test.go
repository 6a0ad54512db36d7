package compare_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards/compare"
)

// BenchmarkDGR is the exact way out of all cycles of a random tournament. The original
// takes 7.5 s for 9 participants in a simplified loop.
func BenchmarkDGR(b *testing.B) {
	for _, n := range []int{8, 9, 12, 16} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			table := fill(keys(r, n), draw(r, n, false, true, false))
			b.ReportAllocs()
			for b.Loop() {
				compare.DGR(table)
			}
		})
	}
}

// BenchmarkMethods is what the others take for 16 participants.
func BenchmarkMethods(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 16))
	table := fill(keys(r, 16), draw(r, 16, false, true, false))
	for name, method := range methods {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				method(table)
			}
		})
	}
}

// BenchmarkPairwise is a group of 16 in both orders, 240 questions, with an engine that
// answers at once: what is spent on this side. Members are pictures of 512², or texts
// of 4,000 characters.
func BenchmarkPairwise(b *testing.B) {
	for _, format := range []string{"jpeg", "png", "text"} {
		b.Run(format, func(b *testing.B) {
			c, err := chat.New(chat.Config{Model: "m", CacheEntries: -1}, tied{})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			options := `{"show":"text"}`
			if format != "text" {
				options = `{"image_format":"` + format + `"}`
			}
			s, err := registry(clients(c)).BuildGroup("pairwise", json.RawMessage(options))
			if err != nil {
				b.Fatal(err)
			}
			pictures := make([]shade, 16)
			for i := range pictures {
				pictures[i] = shade{grey: i, frames: 1, side: 512}
			}
			g := shown(pictures...)
			for i, m := range g.Members {
				m.Sample.Response = strconv.Itoa(i) + strings.Repeat(" word", 800)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.ScoreGroup(b.Context(), g); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// tied is an engine that does not look.
type tied struct{}

func (tied) Do(_ context.Context, c *outbound.Call) (*outbound.Answer, error) {
	a := &outbound.Answer{Status: 200, Body: []byte(`{"choices":[{"message":{"content":"<result>tie</result>"}}]}`)}
	return a, c.Check(a)
}
