package wsconn_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
)

const pictureBytes = 3*512*512 + 900

// BenchmarkUpload sends raw 512x512 pictures from client to server, each answered
// by a short text, as in the round trip of a sample. BenchmarkBareUpload is the
// same with nothing but gorilla, the yardstick: ours should reach 80 % of it.
func BenchmarkUpload(b *testing.B) {
	buf := make([]byte, pictureBytes)
	var server side
	url, conns := serve(b, wsconn.Config{}, funcs{binary: func(r io.Reader) error {
		if _, err := io.ReadFull(r, buf); err != nil {
			return err
		}
		return server.Send([]byte(`{"type":"ack"}`))
	}})
	answers := make(chan struct{}, 1)
	client := dial(b, url, wsconn.Config{}, funcs{text: func([]byte) error { answers <- struct{}{}; return nil }})
	server = accepted(b, conns)
	head, pixels := make([]byte, 900), make([]byte, pictureBytes-900)
	b.SetBytes(pictureBytes)
	b.ReportAllocs()
	for b.Loop() {
		if err := client.SendBinary(context.Background(), head, pixels); err != nil {
			b.Fatal(err)
		}
		<-answers
	}
}

func BenchmarkBareUpload(b *testing.B) {
	buf := make([]byte, pictureBytes)
	url := bareServer(b, func(c *websocket.Conn) error {
		_, r, err := c.NextReader()
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(r, buf); err != nil {
			return err
		}
		return c.WriteMessage(websocket.TextMessage, []byte(`{"type":"ack"}`))
	})
	d := websocket.Dialer{ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10}
	c, resp, err := d.Dial(url, nil)
	require.NoError(b, err)
	_ = resp.Body.Close()
	defer func() { _ = c.Close() }()
	pixels := make([]byte, pictureBytes)
	b.SetBytes(pictureBytes)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.WriteMessage(websocket.BinaryMessage, pixels); err != nil {
			b.Fatal(err)
		}
		if _, _, err := c.ReadMessage(); err != nil {
			b.Fatal(err)
		}
	}
}

// bareServer runs step on every connection until it fails.
func bareServer(b *testing.B, step func(c *websocket.Conn) error) string {
	b.Helper()
	up := websocket.Upgrader{ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		for err == nil {
			err = step(c)
		}
	}))
	b.Cleanup(srv.Close)
	return "ws" + strings.TrimPrefix(srv.URL, "http")
}

// BenchmarkPush is the way of a claim: server to client, one contiguous frame.
func BenchmarkPush(b *testing.B) {
	buf := make([]byte, pictureBytes)
	got := make(chan struct{}, 1)
	url, conns := serve(b, wsconn.Config{}, funcs{})
	dial(b, url, wsconn.Config{}, funcs{binary: func(r io.Reader) error {
		_, err := io.ReadFull(r, buf)
		got <- struct{}{}
		return err
	}})
	server := accepted(b, conns)
	frame := make([]byte, pictureBytes)
	b.SetBytes(pictureBytes)
	b.ReportAllocs()
	for b.Loop() {
		if err := server.SendBinary(context.Background(), frame); err != nil {
			b.Fatal(err)
		}
		<-got
	}
}

// BenchmarkBurstOfResults sends 400-byte texts as fast as the outbox takes them.
func BenchmarkBurstOfResults(b *testing.B) {
	const burst = 256
	n, done := 0, make(chan struct{}, 1)
	url, conns := serve(b, wsconn.Config{}, funcs{})
	dial(b, url, wsconn.Config{}, funcs{text: func([]byte) error {
		if n++; n%burst == 0 {
			done <- struct{}{}
		}
		return nil
	}})
	server := accepted(b, conns)
	text := []byte(strings.Repeat("r", 400))
	b.ReportAllocs()
	for b.Loop() {
		for range burst {
			if err := server.Send(text); err != nil {
				b.Fatal(err)
			}
		}
		<-done
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*burst), "ns/text")
}
