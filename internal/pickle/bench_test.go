package pickle_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rewardloop/rewardloop/internal/pickle"
)

// request16 is a request of 16 images of 25 KB and as many prompts.
func request16(b *testing.B) []byte {
	b.Helper()
	var images [][]byte
	var prompts []string
	for i := range 16 {
		images = append(images, bytes.Repeat([]byte{byte(i)}, 25_000))
		prompts = append(prompts, fmt.Sprintf("a shop sign that says \"number %d\"", i))
	}
	data, err := pickle.Encode(&pickle.Dict{Items: []pickle.Pair{
		{Key: "images", Value: images}, {Key: "prompts", Value: prompts}, {Key: "metadata", Value: &pickle.Dict{}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func BenchmarkDecode16Images(b *testing.B) {
	data := request16(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pickle.Decode(data, pickle.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode16Scores(b *testing.B) {
	scores := make([]float64, 16)
	answer := &pickle.Dict{Items: []pickle.Pair{{Key: "scores", Value: scores}, {Key: "outputs", Value: scores}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pickle.Encode(answer); err != nil {
			b.Fatal(err)
		}
	}
}
