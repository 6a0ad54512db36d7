package chat_test

import (
	"testing"

	"github.com/rewardloop/rewardloop/internal/chat"
)

// BenchmarkChat is what a question about a picture of 787 kB (512², PNG without
// compression) costs besides the engine: digest and body, or the digest alone.
func BenchmarkChat(b *testing.B) {
	picture := make([]byte, 787_000)
	for i := range picture {
		picture[i] = byte(i * i >> 3)
	}
	for name, remember := range map[string]int{"asked": -1, "remembered": 0} {
		b.Run(name, func(b *testing.B) {
			c, err := chat.New(chat.Config{CacheEntries: remember}, answering(says("4")))
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.SetBytes(int64(len(picture)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Chat(b.Context(), ask(chat.Part{Image: picture, MIME: "image/png"}, chat.Text("?"))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
