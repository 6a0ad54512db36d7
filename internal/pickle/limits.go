package pickle

// Limits bounds what one body may cost. The zero value means the defaults;
// with them no body, however hostile, allocates more than 64 MiB plus four
// times its own length (the dearest found takes 58 MiB: 262,144 ints of 20
// digits; see TestNoBodyAllocatesMoreThan64MiBPlusFourTimesItsLength).
type Limits struct {
	// MaxBytes is the longest body. Default 64 MiB.
	MaxBytes int
	// MaxNodes bounds the values pushed while decoding, and again the nodes of
	// the finished value with every shared reference counted each time it is
	// reached. One element of a list, a key or a string of an array is a node; a
	// numeric array is a single one. Default 262,144: a batch of 64 images with
	// GenEval metadata has about 2,000.
	MaxNodes int
	// MaxExpandedBytes bounds the bytes of all strings, bytes and arrays of the
	// finished value with every shared reference counted each time it is
	// reached. Default 256 MiB.
	MaxExpandedBytes int
	// MaxStack bounds open values and marks. CPython keeps at most 2,000 per
	// level of nesting, except for a long tuple. Default 10,000.
	MaxStack int
	// MaxMemo bounds the memo. Default 100,000.
	MaxMemo int
	// MaxDepth bounds the nesting of containers in the finished value.
	// Default 32.
	MaxDepth int
}

// WithDefaults returns a copy of l with defaults in place of zeros.
func (l Limits) WithDefaults() Limits {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&l.MaxBytes, 64<<20)
	set(&l.MaxNodes, 1<<18)
	set(&l.MaxExpandedBytes, 256<<20)
	set(&l.MaxStack, 10_000)
	set(&l.MaxMemo, 100_000)
	set(&l.MaxDepth, 32)
	return l
}
