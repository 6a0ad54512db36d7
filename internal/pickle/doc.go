// Package pickle reads and writes the few Python pickles that reward clients send, without
// executing anything.
//
// The life of a body: [Decode] is handed the whole body in memory. It walks the
// opcodes once over a stack, a list of marks and a memo, as CPython's loader
// does, but every length is compared with the bytes that are left before
// anything is allocated, every opcode and every global name stands in a
// switch one can read (opcodes.go, globals.go), and what stands in neither is
// refused with its name and its offset. REDUCE and BUILD never call anything:
// a handful of known (global, arguments) pairs are turned into Go values here,
// in Go. At STOP the finished value is walked once more with a budget of nodes
// and bytes, counting a shared reference as often as it is reached, so that a
// cycle or a memo bomb is refused wherever it stands, and whoever gets the
// value may recurse over it without thinking.
//
// What is read: protocols 1 to 5 as CPython writes them for None, bool, int,
// float, complex, str, bytes, bytearray, list, tuple, dict, OrderedDict,
// defaultdict, NumPy scalars and C-ordered arrays of b1, u1, i4, i8, f2, f4,
// f8, U and O, under the module names of NumPy 1 and 2. Protocol 0 is refused
// by name, and so are persistent ids, extension codes, INST, OBJ, NEWOBJ, sets,
// out-of-band buffers and ints that need more than 8 bytes (protocol 1's text
// LONG: more than 20 digits).
//
// The opcodes and their arguments follow CPython's Lib/pickle.py and
// Lib/pickletools.py; the forms of NumPy follow array_reduce, descr_reduce and
// numpy/_core/numeric.py.
//
// Bytes alias the input: the caller must not reuse or change the body while it
// holds a decoded value. Strings are copies.
//
// [Encode] writes protocol 4 for plain values, the form in which answers go
// back to Python clients and Go clients send requests.
package pickle
