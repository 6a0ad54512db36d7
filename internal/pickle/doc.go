// Package pickle reads and writes the few Python pickles that reward clients send, without
// executing anything.
//
// [Decode] gets the whole body in memory. It processes the opcodes once with a stack, a list of
// marks and a memo, like CPython's loader, but it compares every length with the number of
// remaining bytes before it allocates memory. Every supported opcode and every supported global
// name is in a switch (opcodes.go, globals.go); all others are refused with their name and offset.
// REDUCE and BUILD never call anything: a few known (global, arguments) pairs are converted to Go
// values. At STOP the finished value is traversed once more with a limit for nodes and bytes, and a
// shared reference counts each time it is reached. Therefore a cycle or a memo bomb is refused
// wherever it is, and callers may traverse a decoded value recursively without further checks.
//
// Supported are protocols 1 to 5 as CPython writes them for None, bool, int, float, complex, str,
// bytes, bytearray, list, tuple, dict, OrderedDict, defaultdict, NumPy scalars and C-ordered arrays
// of b1, u1, i4, i8, f2, f4, f8, U and O, with the module names of NumPy 1 and 2. Protocol 0 is
// refused with its own error. Also refused are persistent ids, extension codes, INST, OBJ, NEWOBJ,
// sets, out-of-band buffers and ints that need more than 8 bytes (protocol 1's text LONG: more than
// 20 digits).
//
// The opcodes and their arguments follow CPython's Lib/pickle.py and Lib/pickletools.py; the forms
// of NumPy follow array_reduce, descr_reduce and numpy/_core/numeric.py.
//
// Bytes share the memory of the input: the caller must not reuse or change the body while it uses a
// decoded value. Strings are copies.
//
// [Encode] writes protocol 4 for plain values, which is the form of answers to Python clients and
// of requests from Go clients.
package pickle
