package pickle

import (
	"fmt"
	"math/big"
	"slices"
)

// checker walks a finished value as a tree: what is shared is counted each time
// it is reached, as whoever walks the value later will meet it. It stops at the
// first limit, so the walk costs at most MaxNodes steps whatever the value is.
type checker struct {
	limits Limits
	nodes  int
	bytes  int
	path   []Value // the containers around the current value, outermost first
}

// checkTree refuses cycles, memo bombs, deep nesting, and classes and dtypes
// left standing as data.
func checkTree(v Value, limits Limits) error {
	return (&checker{limits: limits}).visit(v)
}

func (c *checker) visit(v Value) error {
	if err := c.countNodes(1); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, complex128, *big.Int:
		return nil
	case string:
		return c.countBytes(len(v))
	case []byte:
		return c.countBytes(len(v))
	case *List:
		return c.visitAll(v, v.Items)
	case *Tuple:
		return c.visitAll(v, v.Items)
	case *Dict:
		return c.visitDict(v)
	case *NDArray:
		return c.visitArray(v)
	}
	return valueError(errForbidden, "a %s is not plain data: send values only", TypeName(v))
}

func (c *checker) visitAll(container Value, items []Value) error {
	if err := c.enter(container); err != nil {
		return err
	}
	for _, item := range items {
		if err := c.visit(item); err != nil {
			return err
		}
	}
	c.leave()
	return nil
}

func (c *checker) visitDict(d *Dict) error {
	if err := c.enter(d); err != nil {
		return err
	}
	for _, p := range d.Items {
		if err := c.visit(p.Key); err != nil {
			return err
		}
		if err := c.visit(p.Value); err != nil {
			return err
		}
	}
	c.leave()
	return nil
}

func (c *checker) visitArray(a *NDArray) error {
	if a.DType == "" {
		return valueError(ErrMalformed, "an array was never filled by BUILD")
	}
	if err := c.countBytes(len(a.Data)); err != nil {
		return err
	}
	// The nodes first: they bound the loop that follows.
	if err := c.countNodes(len(a.Strings)); err != nil {
		return err
	}
	for _, s := range a.Strings {
		if err := c.countBytes(len(s)); err != nil {
			return err
		}
	}
	return c.visitAll(a, a.Objects)
}

// enter steps into a container. The path is at most MaxDepth long, so looking
// along it is cheap and names a cycle at its first turn.
func (c *checker) enter(container Value) error {
	if slices.Contains(c.path, container) {
		return valueError(errCycle, "the same %s occurs inside itself: send a tree", TypeName(container))
	}
	if len(c.path) >= c.limits.MaxDepth {
		return valueError(ErrLimit, "containers are nested deeper than %d", c.limits.MaxDepth)
	}
	c.path = append(c.path, container)
	return nil
}

func (c *checker) leave() { c.path = c.path[:len(c.path)-1] }

func (c *checker) countNodes(n int) error {
	if n > c.limits.MaxNodes-c.nodes {
		return valueError(ErrLimit, "the value unfolds to more than %d nodes: share fewer references", c.limits.MaxNodes)
	}
	c.nodes += n
	return nil
}

func (c *checker) countBytes(n int) error {
	if n > c.limits.MaxExpandedBytes-c.bytes {
		return valueError(ErrLimit, "the value unfolds to more than %d bytes: share fewer references", c.limits.MaxExpandedBytes)
	}
	c.bytes += n
	return nil
}

func valueError(class error, format string, args ...any) error {
	return &Error{Class: class, Detail: fmt.Sprintf(format, args...)}
}

// Limits limits the cost of one body. The zero value means the defaults. With the defaults no body,
// however hostile, allocates more than 64 MiB plus four times its own length. The most expensive
// body found takes 58 MiB: 262,144 ints of 20 digits; see
// TestNoBodyAllocatesMoreThan64MiBPlusFourTimesItsLength.
type Limits struct {
	// MaxBytes is the maximum length of the body. The default is 64 MiB.
	MaxBytes int
	// MaxNodes is the maximum number of values pushed while decoding, and also the maximum number
	// of nodes of the finished value, in which a shared reference counts each time it is reached.
	// One element of a list, a key or a string of an array is a node; a numeric array is a single
	// node. The default is 262,144: a batch of 64 images with GenEval metadata has about 2,000.
	MaxNodes int
	// MaxExpandedBytes is the maximum total size of all strings, bytes and arrays of the finished
	// value, in which a shared reference counts each time it is reached. The default is 256 MiB.
	MaxExpandedBytes int
	// MaxStack is the maximum number of open values and marks. CPython keeps at most 2,000 per
	// level of nesting, except for a long tuple. The default is 10,000.
	MaxStack int
	// MaxMemo is the maximum size of the memo. The default is 100,000.
	MaxMemo int
	// MaxDepth is the maximum nesting of containers in the finished value. The default is 32.
	MaxDepth int
}

// WithDefaults returns a copy of l in which zero fields have the defaults.
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
