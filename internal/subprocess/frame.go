package subprocess

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of a frame: of its header, and of its body on the way to a child.
const (
	maxHeader = 64 << 10
	maxBody   = 16 << 20
)

// MaxAnswer is the maximum size in bytes of an answer, the body of a frame to the parent. The
// largest answer of a text detector, 2,048 x 2,048 floats, is 16 MiB; a batch of four of them fits.
const MaxAnswer = 64 << 20

// The operations of the protocol.
const (
	opInit  = "init"
	opDo    = "do"
	opPing  = "ping"
	opOK    = "ok"
	opError = "error"
	opFatal = "fatal"
)

// header is the JSON part of a frame.
type header struct {
	Op  string `json:"op"`
	Seq uint64 `json:"seq"`
	// Capacity is the size of the shared memory, Length how much of it is the request's pixels.
	Capacity int `json:"capacity,omitempty"`
	Length   int `json:"length,omitempty"`
	// BudgetMS is how long the parent will wait for the answer, in milliseconds; 0: no word.
	BudgetMS int64 `json:"budget_ms,omitempty"`
	// Message and Class are set with opError and opFatal.
	Message string `json:"message,omitempty"`
	Class   string `json:"class,omitempty"`
}

type frame struct {
	header
	body []byte
}

var errFrame = errors.New("malformed frame")

// joinBelow is the size of a body that is worth copying behind its header to save
// a system call.
const joinBelow = 64 << 10

// writeFrame sends a frame whose body is at most limit bytes.
func writeFrame(w io.Writer, h header, body []byte, limit int) error {
	js, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if len(js) > maxHeader || len(body) > limit {
		return fmt.Errorf("%w: header of %d and body of %d bytes, the limits are %d and %d", errFrame, len(js), len(body), maxHeader, limit)
	}
	buf := make([]byte, 8, 8+len(js)+min(len(body), joinBelow))
	binary.LittleEndian.PutUint32(buf, uint32(len(js)))       // bounded above
	binary.LittleEndian.PutUint32(buf[4:], uint32(len(body))) // bounded above
	buf = append(buf, js...)
	if len(body) <= joinBelow {
		_, err = w.Write(append(buf, body...))
		return err
	}
	if _, err = w.Write(buf); err == nil {
		_, err = w.Write(body)
	}
	return err
}

// readFrame reads a frame and allocates only after both lengths are within the
// bounds. It returns io.EOF only where no byte of a frame has arrived. The body
// is an allocation of its own: its first byte lies at a multiple of 8, so that a
// caller may look at numbers in it without copying them.
func readFrame(r io.Reader, limit int) (frame, error) {
	var sizes [8]byte
	if _, err := io.ReadFull(r, sizes[:]); err != nil {
		return frame{}, err
	}
	hl, bl := binary.LittleEndian.Uint32(sizes[:4]), binary.LittleEndian.Uint32(sizes[4:])
	if hl > maxHeader || int64(bl) > int64(limit) {
		return frame{}, fmt.Errorf("%w: header of %d and body of %d bytes, the limits are %d and %d", errFrame, hl, bl, maxHeader, limit)
	}
	head := make([]byte, int(hl))
	if _, err := io.ReadFull(r, head); err != nil {
		return frame{}, fmt.Errorf("%w: cut short: %w", errFrame, err)
	}
	f := frame{body: aligned(int(bl))}
	if err := json.Unmarshal(head, &f.header); err != nil {
		return frame{}, fmt.Errorf("%w: header: %w", errFrame, err)
	}
	if _, err := io.ReadFull(r, f.body); err != nil {
		return frame{}, fmt.Errorf("%w: cut short: %w", errFrame, err)
	}
	return f, nil
}

// clip shortens a text that goes into a header or a message.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + " …"
}

// aligned makes n bytes that begin at a multiple of 8. The allocator does so by
// itself for a size that is a multiple of 8.
func aligned(n int) []byte { return make([]byte, (n+7)/8*8)[:n] }
