package fleet

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"math"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scorer is the reward service: an HTTP handler in the test process with a socket on
// the loopback of every host that has a worker, so that faults of the network between
// hosts are not faults of the reward.
type scorer struct {
	least, most time.Duration
	srv         *http.Server
	wg          sync.WaitGroup

	mu    sync.Mutex
	ended map[string]int // by sample id, how often it was answered; guarded by mu
}

func newScorer(t testing.TB, least, most time.Duration) *scorer {
	t.Helper()
	s := &scorer{least: least, most: most, ended: map[string]int{}}
	s.srv = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	t.Cleanup(func() {
		_ = s.srv.Close()
		s.wg.Wait()
	})
	return s
}

// serve answers on a socket until the test ends.
func (s *scorer) serve(l net.Listener) {
	s.wg.Go(func() { _ = s.srv.Serve(l) })
}

// ServeHTTP scores {"id": …, "file": base64} as {"score": checksum}, after a while.
func (s *scorer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		ID   string `json:"id"`
		File []byte `json:"file"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.ID == "" {
		http.Error(w, "want an id and a file", http.StatusBadRequest)
		return
	}
	pause := time.NewTimer(s.least + time.Duration(mrand.Int64N(int64(s.most-s.least)+1))) //nolint:gosec // how long a scorer takes is no secret
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.Context().Done(): // the worker is gone
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"score":%s}`, strconv.FormatFloat(checksum(q.File), 'g', -1, 64))
	s.mu.Lock()
	s.ended[q.ID]++
	s.mu.Unlock()
}

// twice counts the samples that were answered more than once, and all answers.
func (s *scorer) twice() (twice, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.ended {
		all += n
		if n > 1 {
			twice++
		}
	}
	return twice, all
}

// checksum is the reward of a file: its CRC-32 as a fraction, which a float64 and
// JSON hold exactly.
func checksum(file []byte) float64 {
	return float64(crc32.Checksum(file, crc32.MakeTable(crc32.Castagnoli))) / (math.MaxUint32 + 1)
}

// picture is a PNG of about size bytes that are unique: one pixel, and a private chunk
// of random bytes, so that making and reading it costs nothing.
func picture(size int) ([]byte, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewRGBA(image.Rect(0, 0, 1, 1))); err != nil {
		return nil, err
	}
	const head = 8 + 4 + 4 + 13 + 4 // signature and IHDR
	chunk := make([]byte, 4+4+max(size-b.Len()-12, 16)+4)
	data := chunk[4 : len(chunk)-4]
	copy(data, "rwLd")
	_, _ = rand.Read(data[4:])
	binary.BigEndian.PutUint32(chunk, uint32(len(data)-4)) //nolint:gosec // far below 4 GiB
	binary.BigEndian.PutUint32(chunk[len(chunk)-4:], crc32.ChecksumIEEE(data))
	return append(append(append([]byte(nil), b.Bytes()[:head]...), chunk...), b.Bytes()[head:]...), nil
}

// listen opens the scorer's socket on the loopback of a host, nil for this one.
func (f *Fleet) listen(h hostOf) {
	f.t.Helper()
	if f.scoring[h] {
		return
	}
	f.scoring[h] = true
	var l net.Listener
	var err error
	if h == nil {
		var lc net.ListenConfig
		l, err = lc.Listen(f.t.Context(), "tcp", f.scorerAddr)
	} else {
		l, err = h.Listen(f.t.Context(), "tcp", f.scorerAddr)
	}
	require.NoError(f.t, err, "the scorer's socket")
	f.scorer.serve(l)
}

// Scored returns how often the scorer has answered for a sample.
func (f *Fleet) Scored(id string) int {
	f.scorer.mu.Lock()
	defer f.scorer.mu.Unlock()
	return f.scorer.ended[id]
}
