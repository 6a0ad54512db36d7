package slot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of a frame, both ways.
const (
	maxHeader = 64 << 10
	maxBody   = 16 << 20
)

// The operations of the protocol.
const (
	opInit  = "init"
	opDo    = "do"
	opPing  = "ping"
	opOK    = "ok"
	opError = "error"
)

// header is the JSON part of a frame.
type header struct {
	Op  string `json:"op"`
	Seq uint64 `json:"seq"`
	// Capacity is the size of the shared memory, Length how much of it is the request's pixels.
	Capacity int `json:"capacity,omitempty"`
	Length   int `json:"length,omitempty"`
	// Message is set with opError.
	Message string `json:"message,omitempty"`
}

type frame struct {
	header
	body []byte
}

var errFrame = errors.New("malformed frame")

// writeFrame sends a frame in one Write.
func writeFrame(w io.Writer, h header, body []byte) error {
	js, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if len(js) > maxHeader || len(body) > maxBody {
		return fmt.Errorf("%w: header of %d and body of %d bytes, the limits are %d and %d", errFrame, len(js), len(body), maxHeader, maxBody)
	}
	buf := make([]byte, 8, 8+len(js)+len(body))
	binary.LittleEndian.PutUint32(buf, uint32(len(js)))       //nolint:gosec // bounded above
	binary.LittleEndian.PutUint32(buf[4:], uint32(len(body))) //nolint:gosec // bounded above
	buf = append(append(buf, js...), body...)
	_, err = w.Write(buf)
	return err
}

// readFrame reads a frame and allocates only after both lengths are within the
// bounds. It returns io.EOF only where no byte of a frame has arrived.
func readFrame(r io.Reader) (frame, error) {
	var sizes [8]byte
	if _, err := io.ReadFull(r, sizes[:]); err != nil {
		return frame{}, err
	}
	hl, bl := binary.LittleEndian.Uint32(sizes[:4]), binary.LittleEndian.Uint32(sizes[4:])
	if hl > maxHeader || bl > maxBody {
		return frame{}, fmt.Errorf("%w: it announces a header of %d and a body of %d bytes, the limits are %d and %d", errFrame, hl, bl, maxHeader, maxBody)
	}
	buf := make([]byte, int(hl)+int(bl))
	if _, err := io.ReadFull(r, buf); err != nil {
		return frame{}, fmt.Errorf("%w: cut short: %w", errFrame, err)
	}
	var f frame
	if err := json.Unmarshal(buf[:hl], &f.header); err != nil {
		return frame{}, fmt.Errorf("%w: header: %w", errFrame, err)
	}
	f.body = buf[hl:]
	return f, nil
}

// clip shortens a text that goes into a header or a message.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + " …"
}
