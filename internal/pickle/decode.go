package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// copySlack is what a body may copy beyond four times its own length. See
// decoder.charge.
const copySlack = 64 << 10

// decoder reads one body. It lives on the stack of one Decode call.
type decoder struct {
	data   []byte
	limits Limits

	pos int  // next byte to read
	at  int  // offset of the opcode being read
	op  byte // the opcode being read

	stack    []Value
	marks    []int // stack heights at the open MARKs
	memo     []Value
	memoised int // entries of memo that are set

	nodes  int // values pushed so far
	copied int // bytes copied out of the input so far

	// indexes finds the entries of dicts that are too long to search.
	indexes map[*Dict]map[any]int
}

// missing marks a hole in the memo, which may hold None.
type missing struct{}

// Decode decodes one pickle of protocol 1 to 5. data must contain the whole body and nothing else;
// the bytes and arrays of the result share its memory. Zero limits mean the defaults. Every error
// is an *Error that wraps its class.
func Decode(data []byte, limits Limits) (Value, error) {
	limits = limits.WithDefaults()
	if len(data) > limits.MaxBytes {
		return nil, &Error{Class: ErrLimit, Detail: fmt.Sprintf(
			"body of %d bytes, at most %d are read: send smaller batches or raise MaxBytes", len(data), limits.MaxBytes)}
	}
	d := &decoder{
		data:   data,
		limits: limits,
		stack:  make([]Value, 0, 64),
		memo:   make([]Value, 0, 64),
	}
	v, err := d.run()
	if err != nil {
		return nil, err
	}
	if err := checkTree(v, limits); err != nil {
		return nil, err
	}
	return v, nil
}

func (d *decoder) run() (Value, error) {
	for d.pos < len(d.data) {
		d.at = d.pos
		d.op = d.data[d.pos]
		d.pos++
		if d.op == opStop {
			return d.stop()
		}
		if err := d.step(); err != nil {
			return nil, err
		}
	}
	return nil, &Error{Class: ErrMalformed, Detail: fmt.Sprintf(
		"body ends after %d bytes without STOP: send the complete body", len(d.data))}
}

// step carries out one opcode.
func (d *decoder) step() error {
	switch d.op {
	case opProto:
		return d.proto()
	case opFrame:
		// A hint for unbuffered readers. Its length is not believed: bytes over
		// 64 KiB stand outside any frame, so a body has several of them.
		_, err := d.take(8)
		return err
	case opMark:
		if len(d.stack)+len(d.marks) >= d.limits.MaxStack {
			return d.fail(ErrLimit, "more than %d open values and marks", d.limits.MaxStack)
		}
		d.marks = append(d.marks, len(d.stack))
		return nil
	case opMemoize, opBinPut, opLongBinPut:
		return d.put()
	case opBinGet, opLongBinGet:
		return d.get()
	case opEmptyList:
		return d.push(&List{})
	case opEmptyDict:
		return d.push(&Dict{})
	case opEmptyTuple:
		return d.push(&Tuple{})
	case opAppend, opAppends:
		return d.appendItems()
	case opSetItem, opSetItems:
		return d.setItems()
	case opTuple, opTuple1, opTuple2, opTuple3:
		return d.tuple()
	case opGlobal, opStackGlobal:
		return d.global()
	case opReduce:
		return d.reduce()
	case opBuild:
		return d.build()
	}
	return d.literal()
}

// proto checks the header, which protocols 2 to 5 begin with.
func (d *decoder) proto() error {
	b, err := d.take(1)
	switch {
	case err != nil:
		return err
	case d.at != 0:
		return d.malformed("a header in the middle of the body: send one pickle")
	case b[0] == 0:
		return d.fail(ErrProtocol0, "header names protocol 0: call pickle.dumps with protocol 1 to 5")
	case b[0] > 5:
		return d.forbidden("header names protocol %d: call pickle.dumps with protocol 1 to 5", b[0])
	}
	return nil
}

// stop returns the finished value, which must be all there is.
func (d *decoder) stop() (Value, error) {
	switch {
	case len(d.marks) > 0:
		return nil, d.malformed("%d MARKs are still open", len(d.marks))
	case len(d.stack) != 1:
		return nil, d.malformed("%d values are on the stack, want exactly one", len(d.stack))
	case d.pos != len(d.data):
		return nil, d.malformed("%d bytes follow: send one pickle and nothing else", len(d.data)-d.pos)
	}
	return d.stack[0], nil
}

// take returns the next n bytes of the input without copying them.
func (d *decoder) take(n uint64) ([]byte, error) {
	if left := uint64(len(d.data) - d.pos); n > left {
		return nil, d.malformed("needs %d bytes, %d are left: the body is truncated or states a wrong length", n, left)
	}
	start := d.pos
	d.pos += int(n) // n fits, it is at most len(d.data)
	return d.data[start:d.pos:d.pos], nil
}

// charge counts n bytes that are about to be copied. An honest body copies a
// byte at most three times (text of protocol 1, its latin1 bytes, the strings
// of an array made of them); fetching one string from the memo again and again
// to copy it more often is an attack.
func (d *decoder) charge(n int) error {
	d.copied += n
	if most := 4*len(d.data) + copySlack; d.copied > most {
		return d.fail(ErrLimit, "more than %d bytes copied out of a body of %d", most, len(d.data))
	}
	return nil
}

// push puts a value on the stack.
func (d *decoder) push(v Value) error {
	if len(d.stack)+len(d.marks) >= d.limits.MaxStack {
		return d.fail(ErrLimit, "more than %d open values and marks", d.limits.MaxStack)
	}
	if err := d.count(1); err != nil {
		return err
	}
	d.stack = append(d.stack, v)
	return nil
}

// count adds n to the values made so far.
func (d *decoder) count(n int) error {
	if n > d.limits.MaxNodes-d.nodes {
		return d.fail(ErrLimit, "more than %d values: send smaller batches or raise MaxNodes", d.limits.MaxNodes)
	}
	d.nodes += n
	return nil
}

// fence is the lowest stack height that the current opcode may reach down to.
func (d *decoder) fence() int {
	if len(d.marks) == 0 {
		return 0
	}
	return d.marks[len(d.marks)-1]
}

// pop takes the topmost n values. The slice holds until the next push.
func (d *decoder) pop(n int) ([]Value, error) {
	if len(d.stack)-d.fence() < n {
		return nil, d.malformed("needs %d values on the stack, got %d", n, len(d.stack)-d.fence())
	}
	items := d.stack[len(d.stack)-n:]
	d.stack = d.stack[:len(d.stack)-n]
	return items, nil
}

// popMark takes all values above the last MARK, and the MARK. The slice holds
// until the next push.
func (d *decoder) popMark() ([]Value, error) {
	if len(d.marks) == 0 {
		return nil, d.malformed("no MARK is open")
	}
	height := d.fence()
	d.marks = d.marks[:len(d.marks)-1]
	items := d.stack[height:]
	d.stack = d.stack[:height]
	return items, nil
}

// top returns the topmost value, which stays where it is.
func (d *decoder) top() (Value, error) {
	if len(d.stack) <= d.fence() {
		return nil, d.malformed("needs a value on the stack, got none")
	}
	return d.stack[len(d.stack)-1], nil
}

// put remembers the topmost value.
func (d *decoder) put() error {
	v, err := d.top()
	if err != nil {
		return err
	}
	index := d.memoised
	if d.op != opMemoize {
		if index, err = d.memoIndex(opBinPut); err != nil {
			return err
		}
	}
	if index >= d.limits.MaxMemo {
		return d.fail(ErrLimit, "memo entry %d, want at most %d", index, d.limits.MaxMemo)
	}
	if index >= cap(d.memo) {
		// Doubling, not by a quarter as append does at this length, keeps the
		// memo below 5 MB in all.
		d.memo = slices.Grow(d.memo, max(index+1, 2*len(d.memo))-len(d.memo))
	}
	for len(d.memo) <= index {
		d.memo = append(d.memo, missing{})
	}
	if d.memo[index] == (missing{}) {
		d.memoised++
	}
	d.memo[index] = v
	return nil
}

// get pushes a remembered value.
func (d *decoder) get() error {
	index, err := d.memoIndex(opBinGet)
	if err != nil {
		return err
	}
	if index >= len(d.memo) || d.memo[index] == (missing{}) {
		return d.malformed("memo entry %d was never put", index)
	}
	return d.push(d.memo[index])
}

// memoIndex reads a memo index of one byte after the opcode short, of four
// after its long form.
func (d *decoder) memoIndex(short byte) (int, error) {
	if d.op == short {
		b, err := d.take(1)
		if err != nil {
			return 0, err
		}
		return int(b[0]), nil
	}
	b, err := d.take(4)
	if err != nil {
		return 0, err
	}
	// Clamped, so that it is no negative int on a 32-bit machine.
	return int(min(binary.LittleEndian.Uint32(b), math.MaxInt32)), nil
}
