package pickle

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"unicode/utf8"
)

// maxDigits is the longest decimal int of protocol 1's text: 2^64-1 has 20
// digits. Reading n digits costs n squared, and CPython itself stops at 4,300.
const maxDigits = 20

// literal pushes a value that stands in the body itself.
func (d *decoder) literal() error {
	switch d.op {
	case opNone:
		return d.push(nil)
	case opNewTrue:
		return d.push(true)
	case opNewFalse:
		return d.push(false)
	case opInt, opLong:
		return d.textInt()
	case opBinInt, opBinInt1, opBinInt2, opLong1:
		return d.binaryInt()
	case opBinFloat:
		b, err := d.take(8)
		if err != nil {
			return err
		}
		return d.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	case opShortBinBytes, opBinBytes, opBinBytes8, opByteArray8:
		b, err := d.counted()
		if err != nil {
			return err
		}
		return d.push(b)
	case opShortBinUnicode, opBinUnicode, opBinUnicode8:
		b, err := d.counted()
		if err != nil {
			return err
		}
		return d.text(b)
	}
	return d.refuse()
}

// refuse turns away an opcode that is not read.
func (d *decoder) refuse() error {
	switch d.op {
	case 'P', 'Q':
		return d.forbidden("persistent ids are not read: send plain values")
	case 'i', 'o', 0x81, 0x92:
		return d.forbidden("objects of classes are not read: send dicts, lists, str, bytes, numbers or NumPy arrays")
	case 'T', 'U':
		return d.forbidden("the str of Python 2 is not read: send from Python 3")
	}
	if protocol0Names[d.op] != "" {
		return d.fail(ErrProtocol0, "only protocol 0 writes this opcode: call pickle.dumps with protocol 1 to 5")
	}
	if refusedNames[d.op] != "" {
		return d.forbidden("this opcode is not read: send dicts, lists, str, bytes, numbers or NumPy arrays")
	}
	return d.malformed("no pickle has this opcode: send pickle.dumps(...) as the body")
}

// counted returns the bytes behind a length of one, four or eight bytes.
func (d *decoder) counted() ([]byte, error) {
	var width uint64
	switch d.op {
	case opShortBinBytes, opShortBinUnicode:
		width = 1
	case opBinBytes, opBinUnicode:
		width = 4
	default:
		width = 8
	}
	prefix, err := d.take(width)
	if err != nil {
		return nil, err
	}
	return d.take(littleUint(prefix))
}

// littleUint reads up to eight bytes, least significant first.
func littleUint(b []byte) uint64 {
	var n uint64
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	return n
}

// text pushes a str. CPython writes lone surrogates with "surrogatepass", which
// is no UTF-8 and is refused.
func (d *decoder) text(b []byte) error {
	if !utf8.Valid(b) {
		return d.malformed("str is not valid UTF-8: remove lone surrogates")
	}
	if err := d.charge(len(b)); err != nil {
		return err
	}
	return d.push(string(b))
}

// binaryInt pushes an int of one to eight bytes in two's complement. BININT1
// and BININT2 have no sign.
func (d *decoder) binaryInt() error {
	var width byte
	switch d.op {
	case opBinInt1:
		width = 1
	case opBinInt2:
		width = 2
	case opBinInt:
		width = 4
	case opLong1:
		b, err := d.take(1)
		if err != nil {
			return err
		}
		if width = b[0]; width > 8 {
			return d.forbidden("int of %d bytes, want at most 8: send the number as str", width)
		}
	}
	b, err := d.take(uint64(width))
	if err != nil {
		return err
	}
	n := int64(littleUint(b))
	if width > 0 && (d.op == opBinInt || d.op == opLong1) {
		unused := 64 - 8*uint(width)
		n = n << unused >> unused // carries the sign
	}
	return d.push(n)
}

// textInt pushes an int or a bool that protocol 1 wrote as decimal text: INT
// "00" and "01" are False and True, LONG ends in "L".
func (d *decoder) textInt() error {
	line, err := d.line(maxDigits + len("-L"))
	if err != nil {
		return err
	}
	if d.op == opInt && (string(line) == "00" || string(line) == "01") {
		return d.push(line[1] == '1')
	}
	if d.op == opLong {
		line = bytes.TrimSuffix(line, []byte("L"))
	}
	if !isDecimal(line) {
		return d.malformed("%.30q is not an int of at most %d digits", line, maxDigits)
	}
	n, _ := new(big.Int).SetString(string(line), 10) // isDecimal, so it is one
	if n.IsInt64() {
		return d.push(n.Int64())
	}
	return d.push(n)
}

// isDecimal reports whether b is an int as Python prints it.
func isDecimal(b []byte) bool {
	b = bytes.TrimPrefix(b, []byte("-"))
	if len(b) == 0 || len(b) > maxDigits || (b[0] == '0' && len(b) > 1) {
		return false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// line returns the bytes up to the next newline, at most the given number.
func (d *decoder) line(most int) ([]byte, error) {
	window := d.data[d.pos:min(len(d.data), d.pos+most+1)]
	n := bytes.IndexByte(window, '\n')
	if n < 0 {
		return nil, d.malformed("line of more than %d bytes, beginning %.30q", most, window)
	}
	d.pos += n + 1
	return window[:n], nil
}
