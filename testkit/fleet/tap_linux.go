package fleet

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"sync"

	"github.com/rewardloop/rewardloop/testkit/netlab"
)

// tap reads the websocket frames that a server sends, counts results by sample id, and
// notes what is acknowledged.
type tap struct {
	mu    sync.Mutex
	conns map[int]*tapped        // guarded by mu
	seen  map[string]map[int]int // sample id → connection → results; guarded by mu
	acked map[string]bool        // guarded by mu
}

// tapped is one connection.
type tapped struct {
	rest   []byte // bytes that are no whole frame yet
	opened bool   // the answer to the upgrade has passed
	text   []byte // of a message in several frames
}

func newTap() *tap {
	return &tap{conns: map[int]*tapped{}, seen: map[string]map[int]int{}, acked: map[string]bool{}}
}

// read is a Proxy's Tap.
func (p *tap) read(conn int, way netlab.Direction, b []byte) {
	if way != netlab.Down {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[conn]
	if c == nil {
		c = &tapped{}
		p.conns[conn] = c
	}
	c.rest = append(c.rest, b...)
	if !c.opened {
		_, after, ok := bytes.Cut(c.rest, []byte("\r\n\r\n"))
		if !ok {
			return
		}
		c.opened, c.rest = true, after
	}
	for {
		opcode, final, payload, rest, ok := frame(c.rest)
		if !ok {
			return
		}
		c.rest = append([]byte(nil), rest...)
		if opcode > 1 { // binary and control: a server sends no results in them
			continue
		}
		c.text = append(c.text, payload...)
		if final {
			p.message(conn, c.text)
			c.text = nil
		}
	}
}

// frame takes one unmasked frame (RFC 6455, 5.2) off the front of b.
func frame(b []byte) (opcode byte, final bool, payload, rest []byte, ok bool) {
	if len(b) < 2 {
		return 0, false, nil, nil, false
	}
	size, head := uint64(b[1]&0x7f), 2
	switch {
	case size == 126 && len(b) >= 4:
		size, head = uint64(binary.BigEndian.Uint16(b[2:])), 4
	case size == 127 && len(b) >= 10:
		size, head = binary.BigEndian.Uint64(b[2:]), 10
	case size >= 126:
		return 0, false, nil, nil, false
	}
	if uint64(len(b)-head) < size {
		return 0, false, nil, nil, false
	}
	end := head + int(size) //nolint:gosec // at most len(b)
	return b[0] & 0x0f, b[0]&0x80 != 0, b[head:end], b[end:], true
}

// message counts a result. A refusal for want of credit is not one: the client sends
// the sample again.
func (p *tap) message(conn int, text []byte) {
	var m struct {
		Type, ID, Outcome string
		IDs               []string
	}
	if json.Unmarshal(text, &m) != nil {
		return
	}
	for _, id := range m.IDs { // of an ack
		p.acked[id] = true
	}
	if m.Type != "result" || m.Outcome == "rejected" {
		return
	}
	if p.seen[m.ID] == nil {
		p.seen[m.ID] = map[int]int{}
	}
	p.seen[m.ID][conn]++
}

// repeated counts results for samples that had one: on the same connection, and on a
// later one, where the server cannot know whether the first came through.
func (p *tap) repeated() (same, later int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conns := range p.seen {
		later += len(conns) - 1
		for _, n := range conns {
			same += n - 1
		}
	}
	return same, later
}
