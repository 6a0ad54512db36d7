package outbound

import (
	"errors"
	"io"
	"net"
	"sync"
)

// payload lends a call's body to net/http, which may go on reading in a goroutine of
// its own when RoundTrip has returned, and takes it back: the caller may use the memory
// again when Do returns.
type payload struct {
	mu       sync.Mutex
	data     []byte
	released bool
}

var errReleased = errors.New("outbound: the attempt is over")

// release returns when nobody reads the body any more.
func (p *payload) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data, p.released = nil, true
}

func (p *payload) reader() io.ReadCloser { return &payloadReader{p: p} }

type payloadReader struct {
	p   *payload
	off int // Only the goroutine that reads touches it.
}

func (r *payloadReader) Read(b []byte) (int, error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.p.released {
		return 0, errReleased
	}
	if r.off == len(r.p.data) {
		return 0, io.EOF
	}
	n := copy(b, r.p.data[r.off:])
	r.off += n
	return n, nil
}

func (r *payloadReader) Close() error { return nil }

var errTooLong = errors.New("the body is too long")

// readBody reads all of a body, at most so many bytes. declared is its Content-Length,
// -1 if there is none; it is believed only where it is bad news, so that memory is
// used for what has come and not for what was announced.
func readBody(r io.Reader, declared, most int64) ([]byte, error) {
	if declared > most {
		return nil, errTooLong
	}
	first := int64(4 << 10)
	if declared >= 0 {
		first = min(declared, 64<<10) + 1 // One more, to meet the end without growing.
	}
	body := make([]byte, 0, first)
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > most:
			return nil, errTooLong
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return body, err
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
	}
}

// unsent reports whether a request surely never left: there was no connection.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}
