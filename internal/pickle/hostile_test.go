package pickle_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pickle"
)

type hostile struct {
	name  string
	data  []byte
	class error
	says  string // part of the message
}

// bomb writes 60 containers in the memo, each holding the one before twice, and
// leaves the last on the stack.
func bomb(empty, fill func(previous string) string) string {
	var b strings.Builder
	b.WriteString(empty("") + put(0))
	for i := 1; i <= 60; i++ {
		b.WriteString("0" + fill(get(i-1)) + put(i))
	}
	return b.String()
}

// stackedBomb is a bomb without POP: all parts lie in a list beside the last.
func stackedBomb(levels int, first string, next func(previous string) string) string {
	var b strings.Builder
	b.WriteString("](" + first + put(0))
	for i := 1; i <= levels; i++ {
		b.WriteString(next(get(i-1)) + put(i))
	}
	return b.String() + "e"
}

func hostileLengths() []hostile {
	tib := le(8, 1<<40)
	return []hostile{
		{"BINBYTES8 of 1 TiB in 11 bytes", body(proto, "\x8e", tib), pickle.ErrMalformed, "needs 1099511627776 bytes, 0 are left"},
		{"BINUNICODE8 of 1 TiB", body(proto, "\x8d", tib), pickle.ErrMalformed, "BINUNICODE8 at byte 2"},
		{"BYTEARRAY8 of 1 TiB", body(proto, "\x96", tib), pickle.ErrMalformed, "BYTEARRAY8"},
		{"BINBYTES8 of 2^64-1", body(proto, "\x8e", le(8, 1<<64-1), "x."), pickle.ErrMalformed, "needs 18446744073709551615"},
		{"BINBYTES of 4 GiB", body(proto, "B\xff\xff\xff\xff"), pickle.ErrMalformed, "needs 4294967295"},
		{"SHORT_BINBYTES cut off", body(proto, "C\x05abc."), pickle.ErrMalformed, "needs 5 bytes, 4 are left"},
		{"a length cut off", body(proto, "X\x01\x00"), pickle.ErrMalformed, "needs 4 bytes"},
		{"BINFLOAT cut off", body(proto, "G\x00\x00"), pickle.ErrMalformed, "BINFLOAT"},
		{"FRAME cut off", body(proto, "\x95\x00"), pickle.ErrMalformed, "FRAME"},
		{"a million MARKs", bytes.Repeat([]byte("("), 1e6), pickle.ErrLimit, "10000 open values and marks"},
		{"a million Nones", body(proto, strings.Repeat("N", 1e6)), pickle.ErrLimit, "10000 open values and marks"},
		{"a million Nones in a list", body(proto, "]", strings.Repeat("Na", 1e6), "."), pickle.ErrLimit, "more than 262144 values"},
		{"2 MB of digits as LONG", body("L", strings.Repeat("9", 2e6), "L\n."), pickle.ErrMalformed, "line of more than 22 bytes"},
		{"2 MB of digits as INT", body("I", strings.Repeat("9", 2e6), "\n."), pickle.ErrMalformed, "INT at byte 0"},
		{"2 MB of a module's name", body("c", strings.Repeat("a", 2e6), "\nb\n."), pickle.ErrMalformed, "GLOBAL at byte 0"},
		{"1 MB of a module's name on the stack", body(proto, str(strings.Repeat("a", 1e6)), str("b"), "\x93."), pickle.ErrForbidden, "more than 128 bytes"},
		{"memo index 2^32-1", body(proto, "Nr\xff\xff\xff\xff."), pickle.ErrLimit, "LONG_BINPUT"},
		{"memo index 100,000", body(proto, "Nr", le(4, 100_000), "."), pickle.ErrLimit, "want at most 100000"},
		{"LONG1 of 9 bytes", body(proto, "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."), pickle.ErrForbidden, "9 bytes"},
		{"LONG4", body(proto, "\x8b\x01\x00\x00\x00\x01."), pickle.ErrForbidden, "LONG4"},
	}
}

func hostileShapes() []hostile {
	list := func(previous string) string { return "](" + previous + previous + "e" }
	tuple := func(previous string) string { return previous + previous + tuple2 }
	dict := func(previous string) string { return "}(K\x01" + previous + "K\x02" + previous + "u" }
	array := func(previous string) string {
		return emptyArray + "(K\x01K\x02\x85" + dtypeOf("O8", "|", -1) + no + "](" + previous + previous + "etb"
	}
	megabyte := bin(strings.Repeat("x", 1<<20))
	thousand := func(s string) string { return strings.Repeat(s, 1000) }
	encode := "c_codecs\nencode\n" + put(2)
	texts := emptyArray + "(K\x01J" + le(4, 100_000) + "\x85" + dtypeOf("U1", "<", 4) + no + bin(strings.Repeat("a\x00\x00\x00", 100_000)) + "tb"
	return []hostile{
		{"list in itself", body(proto, "]\x94h\x00a."), pickle.ErrCycle, "list"},
		{"list in itself in metadata", inMetadata("]", put(0), get(0), "a"), pickle.ErrCycle, "list"},
		{"dict in itself", body(proto, "}", put(0), str("a"), get(0), "s."), pickle.ErrCycle, "dict"},
		{"dict in itself in metadata", inMetadata("}", put(0), str("a"), "](", get(0), "es"), pickle.ErrCycle, "dict"},
		{"list in a tuple in the list", inMetadata("]", put(0), get(0), tuple1, "a"), pickle.ErrCycle, "list"},
		{"the request in its metadata", body(proto, "}", put(0), str("metadata"), "}", str("k"), get(0), "ss."), pickle.ErrCycle, "dict"},
		{"defaultdict in itself", inMetadata("ccollections\ndefaultdict\n)R", put(0), "K\x01", get(0), "s"), pickle.ErrCycle, "dict"},
		{"array in itself by BUILD", inMetadata(emptyArray, put(0), "(K\x01K\x01\x85", dtypeOf("O8", "|", -1), no, "](", get(0), "etb"), pickle.ErrCycle, "ndarray"},
		{"array in the list it was built from", inMetadata("](", "]", put(0), emptyArray, put(1), "(K\x01K\x01\x85", dtypeOf("O8", "|", -1), no, "](", get(1), "etb", "e"), pickle.ErrCycle, "ndarray"},
		{"list as its own key", body(proto, "}]", put(0), get(0), "s."), pickle.ErrForbidden, "key of a dict"},
		{"33 lists", body(proto, strings.Repeat("]", 33), strings.Repeat("a", 32), "."), pickle.ErrLimit, "deeper than 32"},
		{"9,000 lists", body(proto, strings.Repeat("]", 9000), strings.Repeat("a", 8999), "."), pickle.ErrLimit, "deeper than 32"},
		{"200,000 tuples", body(proto, ")", strings.Repeat(tuple1, 200_000), "."), pickle.ErrLimit, "deeper than 32"},
		{"60 levels with POP", inMetadata(bomb(func(string) string { return "]" }, list)), pickle.ErrForbidden, "POP"},
		{"60 levels of lists", inMetadata(stackedBomb(60, "]", list)), pickle.ErrLimit, ""},
		{"20 levels of lists", inMetadata(stackedBomb(20, "]", list)), pickle.ErrLimit, "unfolds to more than 262144 nodes"},
		{"20 levels of tuples", inMetadata(stackedBomb(20, ")", tuple)), pickle.ErrLimit, "unfolds to more than 262144 nodes"},
		{"20 levels of dicts", inMetadata(stackedBomb(20, "}", dict)), pickle.ErrLimit, "unfolds to more than 262144 nodes"},
		{"20 levels of arrays", inMetadata(stackedBomb(20, "]", array)), pickle.ErrLimit, "unfolds to more than 262144 nodes"},
		{"1 MB of bytes 1,000 times", inMetadata("](", megabyte, put(0), thousand(get(0)), "e"), pickle.ErrLimit, "unfolds to more than 268435456 bytes"},
		{"1 MB of text 1,000 times", inMetadata("](", str(strings.Repeat("x", 1<<20)), put(0), thousand(get(0)), "e"), pickle.ErrLimit, "bytes"},
		{"1 MB encoded 1,000 times", inMetadata("](", str(strings.Repeat("x", 1<<20)), put(0), str("latin1"), put(1), encode, thousand(get(2)+get(0)+get(1)+tuple2+"R"), "e"), pickle.ErrLimit, "copied out of a body"},
		{"100,000 strings of an array 1,000 times", inMetadata("](", texts, put(0), thousand(get(0)), "e"), pickle.ErrLimit, "unfolds"},
		{"100,000 strings built 1,000 times", inMetadata("](", dtypeOf("U1", "<", 4), put(0), bin(strings.Repeat("a\x00\x00\x00", 100_000)), put(1),
			"J", le(4, 100_000), tuple1, put(2), thousand(emptyArray+"(K\x01"+get(2)+get(0)+no+get(1)+"tb"), "e"), pickle.ErrLimit, ""},
	}
}

func hostileObjects() []hostile {
	return []hostile{
		{"PERSID", body("P1\n."), pickle.ErrForbidden, "PERSID"},
		{"BINPERSID", body(proto, "NQ."), pickle.ErrForbidden, "BINPERSID"},
		{"INST", body("(ios\nsystem\n."), pickle.ErrForbidden, "INST"},
		{"OBJ", body("(cos\nsystem\no."), pickle.ErrForbidden, "os.system"},
		{"OBJ of a harmless class", body("(cbuiltins\nlist\no."), pickle.ErrForbidden, "OBJ"},
		{"NEWOBJ", body(proto, "cbuiltins\nlist\n)\x81."), pickle.ErrForbidden, "NEWOBJ"},
		{"NEWOBJ_EX", body(proto, "cbuiltins\nlist\n)}\x92."), pickle.ErrForbidden, "NEWOBJ_EX"},
		{"EXT1", body(proto, "\x82\x01."), pickle.ErrForbidden, "EXT1"},
		{"EXT2", body(proto, "\x83\x01\x00."), pickle.ErrForbidden, "EXT2"},
		{"EXT4", body(proto, "\x84\x01\x00\x00\x00."), pickle.ErrForbidden, "EXT4"},
		{"NEXT_BUFFER", body("\x80\x05\x97."), pickle.ErrForbidden, "NEXT_BUFFER"},
		{"EMPTY_SET", body(proto, "\x8f."), pickle.ErrForbidden, "EMPTY_SET"},
		{"DUP", body(proto, "]2a."), pickle.ErrForbidden, "DUP"},
		{"str of Python 2", body("\x80\x02U\x01a."), pickle.ErrForbidden, "Python 2"},
		{"os.system", body(proto, "cos\nsystem\n", str("true"), tuple1, "R."), pickle.ErrForbidden, `global "os.system"`},
		{"eval", body(proto, str("builtins"), str("eval"), "\x93."), pickle.ErrForbidden, `global "builtins.eval"`},
		{"dotted name", body(proto, str("builtins"), str("list.append"), "\x93."), pickle.ErrForbidden, `"builtins.list.append"`},
		{"copyreg", body("ccopyreg\n_reconstructor\n."), pickle.ErrForbidden, "copyreg._reconstructor"},
		{"numpy.load", body(proto, "cnumpy\nload\n."), pickle.ErrForbidden, "numpy.load"},
		{"names of no strings", body(proto, "K\x01K\x02\x93."), pickle.ErrMalformed, "STACK_GLOBAL"},
		{"a class as data", body(proto, "cbuiltins\nlist\n."), pickle.ErrForbidden, "builtins.list is not plain data"},
		{"a class in metadata", inMetadata("cnumpy\nndarray\n"), pickle.ErrForbidden, "numpy.ndarray is not plain data"},
		{"a dtype in metadata", inMetadata(dtypeOf("f4", "<", -1)), pickle.ErrForbidden, "numpy.dtype is not plain data"},
		{"an array that is never filled", inMetadata(emptyArray), pickle.ErrMalformed, "never filled"},
		{"REDUCE of a list", body(proto, "])R."), pickle.ErrMalformed, "want a global and a tuple"},
		{"REDUCE with a list", body(proto, "cbuiltins\nlist\n]R."), pickle.ErrMalformed, "want a global and a tuple"},
		{"list of an iterable", body(proto, "cbuiltins\nlist\n)\x85R."), pickle.ErrForbidden, "builtins.list"},
		{"ndarray called", body(proto, "cnumpy\nndarray\n)R."), pickle.ErrForbidden, "cannot be called"},
		{"encode to zip", body("c_codecs\nencode\n(", str("x"), str("zip"), "tR."), pickle.ErrForbidden, "latin1"},
		{"encode of no latin1", body("c_codecs\nencode\n(", str("€"), str("latin1"), "tR."), pickle.ErrMalformed, "is not in latin1"},
		{"bytearray of a length", body("cbuiltins\nbytearray\n(J\xff\xff\xff\x7ftR."), pickle.ErrForbidden, "bytearray"},
		{"defaultdict of encode", body("ccollections\ndefaultdict\n(c_codecs\nencode\ntR."), pickle.ErrForbidden, "defaultdict"},
		{"defaultdict of bytes", body("ccollections\ndefaultdict\n(C\x01xtR."), pickle.ErrForbidden, "defaultdict"},
		{"complex of strings", body("cbuiltins\ncomplex\n(", str("1"), str("2"), "tR."), pickle.ErrForbidden, "complex"},
		{"BUILD of a dict", body(proto, "})b."), pickle.ErrForbidden, "hands a state to a dict"},
		{"BUILD with a dict", body(proto, dtypeOf("f4", "<", -1), "}b."), pickle.ErrForbidden, "want a tuple"},
	}
}

func hostileArrays() []hostile {
	array := func(shape, dtype, data string) []byte {
		return body(proto, emptyArray, "(K\x01", shape, dtype, no, data, "tb.")
	}
	f4 := dtypeOf("f4", "<", -1)
	big := "J\xff\xff\xff\x7f"
	filled := emptyArray + "(K\x01)" + f4 + no + "C\x04abcdtb"
	return []hostile{
		{"2^31 × 2^31 × 2^31 elements", array(big+big+big+tuple3, f4, "C\x00"), pickle.ErrMalformed, "2^31-1 elements"},
		{"a shape that overflows to the data's length", array("M\x00\x80M\x00\x80"+tuple2, dtypeOf("U4", "<", 16), "C\x00"), pickle.ErrMalformed, "1073741824 elements"},
		{"2^31-1 empty strings", array(big+tuple1, dtypeOf("U0", "<", 0), "C\x00"), pickle.ErrLimit, "values"},
		{"a negative dimension", array("J\xff\xff\xff\xff"+tuple1, f4, "C\x00"), pickle.ErrMalformed, "contains -1"},
		{"a dimension of 2^40", array("\x8a\x06"+le(6, 1<<40)+tuple1, f4, "C\x00"), pickle.ErrMalformed, "contains 1099511627776"},
		{"a dimension of text", array(str("3")+tuple1, f4, "C\x00"), pickle.ErrMalformed, "contains str"},
		{"65 dimensions", array("("+strings.Repeat("K\x01", 65)+"t", f4, "C\x04abcd"), pickle.ErrMalformed, "at most 64"},
		{"a shape that is a list", array("]", f4, "C\x04abcd"), pickle.ErrMalformed, "shape is a list"},
		{"too few bytes", array("K\x02"+tuple1, f4, "C\x07abcdefg"), pickle.ErrMalformed, "2 elements of dtype f4 over 7 bytes"},
		{"numbers over a list", array("K\x00"+tuple1, f4, "]"), pickle.ErrMalformed, "array data is a list"},
		{"objects over bytes", array("K\x01"+tuple1, dtypeOf("O8", "|", -1), "C\x08abcdefgh"), pickle.ErrMalformed, "object array"},
		{"objects over a short list", array("K\x02"+tuple1, dtypeOf("O8", "|", -1), "]Na"), pickle.ErrMalformed, "object array of 2"},
		{"a surrogate in UTF-32", array("K\x01"+tuple1, dtypeOf("U1", "<", 4), "C\x04\x00\xd8\x00\x00"), pickle.ErrMalformed, "0xd800"},
		{"beyond Unicode in UTF-32", array("K\x01"+tuple1, dtypeOf("U1", "<", 4), "C\x04\xff\xff\xff\xff"), pickle.ErrMalformed, "0xffffffff"},
		{"Fortran order", body(proto, emptyArray, "(K\x01K\x01\x85", f4, yes, "C\x04abcdtb."), pickle.ErrForbidden, "C order"},
		{"a second state", body(proto, filled, "(K\x01)", f4, no, "C\x04abcdtb."), pickle.ErrMalformed, "second state"},
		{"a dtype's second state", body(proto, f4, "(K\x03", str("<"), "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb."), pickle.ErrMalformed, "second state"},
		{"dtype of no dtype", array("K\x01"+tuple1, str("f4"), "C\x04abcd"), pickle.ErrMalformed, "array of dtype str"},
		{"dtype i2", body(proto, dtypeOf("i2", "<", -1), "."), pickle.ErrForbidden, `dtype "i2"`},
		{"dtype V8", body(proto, dtypeOf("V8", "|", 8), "."), pickle.ErrForbidden, `dtype "V8"`},
		{"dtype U of 2^40", body(proto, dtypeOf("U1099511627776", "<", 0), "."), pickle.ErrForbidden, "dtype"},
		{"dtype U with another size", body(proto, dtypeOf("U1", "<", 8), "."), pickle.ErrMalformed, "differs from the size of its code"},
		{"big-endian", body(proto, dtypeOf("f4", ">", -1), "."), pickle.ErrForbidden, "little-endian"},
		{"dtype of an int", body("cnumpy\ndtype\n(K\x04", "I00\nI01\ntR."), pickle.ErrForbidden, "numpy.dtype of a int"},
		{"dtype of a code alone", body("cnumpy\ndtype\n(", str("f4"), "tR."), pickle.ErrForbidden, "two flags"},
		{"dtype with text for flags", body("cnumpy\ndtype\n(", str("f4"), "NNtR."), pickle.ErrForbidden, "two flags"},
		{"dtype with metadata", body("cnumpy\ndtype\n(", str("f4"), "I00\nI01\ntR(K\x04", str("<"), "NNNK\x04K\x04K\x00}tb."), pickle.ErrForbidden, "metadata"},
		{"dtype with fields", body("cnumpy\ndtype\n(", str("f4"), "I00\nI01\ntR(K\x03", str("|"), "N(", str("a"), "t}K\x04K\x04K\x00tb."), pickle.ErrForbidden, "has fields"},
		{"an array's state of version 2", body(proto, emptyArray, "(K\x02)", f4, no, "C\x04abcdtb."), pickle.ErrForbidden, "another version"},
		{"_frombuffer of three", body(proto, "cnumpy.core.numeric\n_frombuffer\n(C\x04abcd", f4, "K\x01\x85tR."), pickle.ErrMalformed, "3 arguments"},
		{"scalar of one argument", body(proto, "cnumpy.core.multiarray\nscalar\n", f4, "\x85R."), pickle.ErrMalformed, "1 arguments"},
		{"a subclass of ndarray", body(proto, "cnumpy.core.multiarray\n_reconstruct\ncbuiltins\nlist\nK\x00\x85C\x01b\x87R."), pickle.ErrForbidden, "numpy.ndarray"},
		{"scalar of the wrong length", body(proto, "cnumpy.core.multiarray\nscalar\n", f4, "C\x03abc\x86R."), pickle.ErrMalformed, "over 3 bytes"},
		{"scalar of an object", body(proto, "cnumpy.core.multiarray\nscalar\n", dtypeOf("O8", "|", -1), "C\x00\x86R."), pickle.ErrForbidden, ".item()"},
		{"_frombuffer in Fortran order", body(proto, "cnumpy.core.numeric\n_frombuffer\n(C\x04abcd", f4, "K\x01\x85", str("F"), "tR."), pickle.ErrForbidden, "C order"},
		{"_frombuffer of objects", body(proto, "cnumpy.core.numeric\n_frombuffer\n(C\x08abcdefgh", dtypeOf("O8", "|", -1), "K\x01\x85", str("C"), "tR."), pickle.ErrMalformed, "object array"},
	}
}

func hostileStreams() []hostile {
	return []hostile{
		{"nothing", nil, pickle.ErrMalformed, "0 bytes without STOP"},
		{"only STOP", body("."), pickle.ErrMalformed, "0 values"},
		{"two values", body("NN."), pickle.ErrMalformed, "2 values"},
		{"an open MARK", body("(N."), pickle.ErrMalformed, "MARKs are still open"},
		{"bytes after STOP", body("N.."), pickle.ErrMalformed, "1 bytes follow"},
		{"two headers", body(proto, proto, "N."), pickle.ErrMalformed, "middle of the body"},
		{"header of protocol 6", body("\x80\x06N."), pickle.ErrForbidden, "protocol 6"},
		{"header of protocol 0", body("\x80\x00N."), pickle.ErrProtocol0, "protocol 1 to 5"},
		{"dict of protocol 0", body("(dp0\nVimages\np1\n."), pickle.ErrProtocol0, "DICT at byte 1"},
		{"list of protocol 0", body("(lp0\nF1.5\na."), pickle.ErrProtocol0, "LIST at byte 1"},
		{"text of protocol 0", body("Vhello\n."), pickle.ErrProtocol0, "UNICODE"},
		{"float of protocol 0", body("F1.5\n."), pickle.ErrProtocol0, "FLOAT"},
		{"string of protocol 0", body("S'a'\n."), pickle.ErrProtocol0, "STRING"},
		{"PUT of protocol 0", body("Np0\n."), pickle.ErrProtocol0, "PUT"},
		{"GET of protocol 0", body("Np0\ng0\n."), pickle.ErrProtocol0, "PUT"},
		{"text from a proxy", []byte("Internal Server Error\n"), pickle.ErrMalformed, "INT at byte 0"},
		{"HTML", []byte("<html></html>"), pickle.ErrMalformed, "no pickle has this opcode"},
		{"JSON", []byte(`{"images": []}`), pickle.ErrMalformed, "no pickle has this opcode"},
		{"memo entry never put", body("h\x00."), pickle.ErrMalformed, "memo entry 0 was never put"},
		{"hole in the memo", body("N", put(5), get(4), "."), pickle.ErrMalformed, "memo entry 4 was never put"},
		{"PUT of nothing", body(proto, "\x94."), pickle.ErrMalformed, "MEMOIZE"},
		{"PUT below a MARK", body(proto, "](\x94."), pickle.ErrMalformed, "got none"},
		{"TUPLE2 below a MARK", body(proto, "N(N\x86."), pickle.ErrMalformed, "needs 2 values on the stack, got 1"},
		{"APPENDS without a MARK", body(proto, "]Ne."), pickle.ErrMalformed, "no MARK is open"},
		{"APPEND to a dict", body(proto, "}Na."), pickle.ErrMalformed, "appends to a dict"},
		{"SETITEM of a list", body(proto, "]NNs."), pickle.ErrMalformed, "sets items of a list"},
		{"SETITEMS of three", body(proto, "}(NNNu."), pickle.ErrMalformed, "3 values are not pairs"},
		{"tuple as a key", body(proto, "})Ns."), pickle.ErrForbidden, "a tuple as the key"},
		{"bytes as a key", body(proto, "}C\x01xNs."), pickle.ErrForbidden, "a bytes as the key"},
		{"no UTF-8", body(proto, str("\xff"), "."), pickle.ErrMalformed, "UTF-8"},
		{"surrogatepass", body(proto, str("\xed\xa0\x80"), "."), pickle.ErrMalformed, "surrogates"},
		{"INT of hexadecimal", body("I0x10\n."), pickle.ErrMalformed, "is not an int"},
		{"INT with a space", body("I 5\n."), pickle.ErrMalformed, "is not an int"},
		{"INT with an underscore", body("I1_000\n."), pickle.ErrMalformed, "is not an int"},
		{"INT of leading zeros", body("I007\n."), pickle.ErrMalformed, "is not an int"},
		{"INT of nothing", body("I\n."), pickle.ErrMalformed, "is not an int"},
		{"LONG of a sign", body("L-L\n."), pickle.ErrMalformed, "is not an int"},
		{"LONG of 21 digits", body("L123456789012345678901L\n."), pickle.ErrMalformed, "20 digits"},
		{"LONG without an end", body("L5"), pickle.ErrMalformed, "line of more than 22 bytes"},
	}
}

func TestHostileBodiesAreRefusedByNameWithin64MiBAndOneSecond(t *testing.T) { //nolint:paralleltest // measures allocations of the process
	for _, group := range [][]hostile{hostileLengths(), hostileShapes(), hostileObjects(), hostileArrays(), hostileStreams()} {
		for _, h := range group {
			var v pickle.Value
			var err error
			allocated, took := measure(func() { v, err = pickle.Decode(h.data, pickle.Limits{}) })
			assert.Nil(t, v, h.name)
			require.ErrorIs(t, err, pickle.ErrPickle, h.name)
			require.ErrorIs(t, err, h.class, "%s: %v", h.name, err)
			require.ErrorContains(t, err, h.says, h.name)
			assert.LessOrEqual(t, allocated, uint64(64<<20), h.name)
			assert.LessOrEqual(t, took, time.Second, h.name)
			if took > 50*time.Millisecond {
				t.Logf("%s: %v", h.name, took)
			}
		}
	}
}

// The bodies are all within the limits, or just beyond, and made to cost as
// much as they can.
func TestNoBodyAllocatesMoreThan64MiBPlusFourTimesItsLength(t *testing.T) { //nolint:paralleltest // measures allocations of the process
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString("J" + le(4, uint64(i)+1<<20) + "Ns")
		}
		return b.String()
	}
	digits := make([]byte, 0, 23)
	digits = append(digits, "L99999999999999999999L\na"...)
	seventeen := "}" + keys(17) + "a"
	shape := "(" + strings.Repeat("K\x01", 64) + "t" + put(1)
	state := "(K\x01" + shape + dtypeOf("u1", "|", -1) + no + "C\x01x" + "t" + put(2)
	for name, data := range map[string][]byte{
		"empty dicts":        body(proto, "]", strings.Repeat("}a", 262_000), "."),
		"lists of one":       body(proto, "]", strings.Repeat("]Naa", 87_000), "."),
		"tuples of one":      body(proto, "]", strings.Repeat("N\x85a", 131_000), "."),
		"ints":               body(proto, "]", strings.Repeat("J\xff\xff\xff\x7fa", 262_000), "."),
		"ints of 20 digits":  body("]", strings.Repeat(string(digits), 262_000), "."),
		"empty strings":      body(proto, "]", strings.Repeat("X\x00\x00\x00\x00a", 262_000), "."),
		"one dict":           body(proto, "}", keys(130_000), "."),
		"dicts of seventeen": body(proto, "]", strings.Repeat(seventeen, 7_400), "."),
		"memo":               body(proto, "N", strings.Repeat("\x94", 100_000), "."),
		"arrays of 64 dimensions": body(proto, "](cnumpy.core.multiarray\n_reconstruct\n", put(3), "cnumpy\nndarray\nNN\x87", put(4), state, "e",
			strings.Repeat(get(3)+get(4)+"R"+get(2)+"ba", 52_000), "."),
		"strings of an array": body(proto, emptyArray, "(K\x01J", le(4, 262_000), "\x85", dtypeOf("U1", "<", 4), no,
			bin(strings.Repeat("\x2d\x4e\x00\x00", 262_000)), "tb."),
		"bytes in latin1": body("c_codecs\nencode\n(", str(strings.Repeat("\u00ff", 4<<20)), str("latin1"), "tR."),
	} {
		var err error
		allocated, took := measure(func() { _, err = pickle.Decode(data, pickle.Limits{}) })
		t.Logf("%-24s %8d bytes in, %6.1f MiB allocated, %v, error: %v", name, len(data), float64(allocated)/(1<<20), took, err)
		assert.LessOrEqual(t, allocated, uint64(64<<20+4*len(data)), name)
		assert.LessOrEqual(t, took, 5*time.Second, "%s: some 100 ms, ten times that under the race detector", name)
	}
}

func TestAFrameIsOnlyAHintWhateverItsLength(t *testing.T) { //nolint:paralleltest // measures allocations of the process
	for _, length := range []uint64{0, 1, 1 << 62, 1<<64 - 1} {
		data := body(proto, "\x95", le(8, length), "]\x95", le(8, length), "Na.")
		allocated, _ := measure(func() {
			assert.Equal(t, &pickle.List{Items: []pickle.Value{nil}}, mustDecode(t, data))
		})
		assert.Less(t, allocated, uint64(1<<20))
	}
}

func TestLimitsAreHeldAndNamed(t *testing.T) {
	t.Parallel()
	data, err := pickle.Encode([]pickle.Value{1, "abc", []pickle.Value{2}})
	require.NoError(t, err)
	_, err = pickle.Decode(data, pickle.Limits{MaxBytes: len(data), MaxNodes: 6, MaxExpandedBytes: 3, MaxStack: 7, MaxDepth: 2})
	require.NoError(t, err)
	for says, limits := range map[string]pickle.Limits{
		fmt.Sprintf("body of %d bytes", len(data)): {MaxBytes: len(data) - 1},
		"more than 4 values":                       {MaxNodes: 4},
		"more than 2 bytes":                        {MaxExpandedBytes: 2},
		"more than 4 open":                         {MaxStack: 4},
		"deeper than 1":                            {MaxDepth: 1},
	} {
		_, err := pickle.Decode(data, limits)
		require.ErrorIs(t, err, pickle.ErrLimit, says)
		require.ErrorContains(t, err, says)
	}
	_, err = pickle.Decode([]byte("N\x94\x94."), pickle.Limits{MaxMemo: 2})
	require.NoError(t, err)
	_, err = pickle.Decode([]byte("N\x94\x94\x94."), pickle.Limits{MaxMemo: 2})
	require.ErrorContains(t, err, "memo entry 2, want at most 2")
}

func TestTheErrorGivesTheOffsetOfTheOpcode(t *testing.T) {
	t.Parallel()
	_, err := pickle.Decode(body(proto, "]", "cposix\nsystem\n"), pickle.Limits{})
	var refused *pickle.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, 3, refused.Offset)
	assert.Equal(t, "GLOBAL", refused.Op)
	assert.Equal(t, pickle.ErrForbidden, refused.Class)
}
