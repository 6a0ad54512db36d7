package pickle

import (
	"strings"
	"unicode/utf8"
)

// maxName is the longest module or attribute name that is looked at; the
// longest on the allow-list has 22 bytes.
const maxName = 128

// global is a name of the allow-list as Python writes it, on its way to a REDUCE. It is no value.
type global string

const (
	globalEncode      global = "_codecs.encode"
	globalBytes       global = "builtins.bytes"
	globalByteArray   global = "builtins.bytearray"
	globalComplex     global = "builtins.complex"
	globalList        global = "builtins.list"
	globalDict        global = "builtins.dict"
	globalOrderedDict global = "collections.OrderedDict"
	globalDefaultDict global = "collections.defaultdict"
	globalDType       global = "numpy.dtype"
	globalNDArray     global = "numpy.ndarray"
	globalReconstruct global = "numpy.core.multiarray._reconstruct"
	globalScalar      global = "numpy.core.multiarray.scalar"
	globalFromBuffer  global = "numpy.core.numeric._frombuffer"
)

// lookupGlobal is the allow-list. __builtin__ is what protocols 1 and 2 call
// builtins; NumPy 2 renamed numpy.core to numpy._core.
func lookupGlobal(module, name string) (global, bool) {
	if module == "__builtin__" {
		module = "builtins"
	}
	if rest, ok := strings.CutPrefix(module, "numpy._core."); ok {
		module = "numpy.core." + rest
	}
	switch g := global(module + "." + name); g {
	case globalEncode, globalBytes, globalByteArray, globalComplex, globalList, globalDict,
		globalOrderedDict, globalDefaultDict, globalDType, globalNDArray,
		globalReconstruct, globalScalar, globalFromBuffer:
		return g, !strings.Contains(name, ".")
	}
	return "", false
}

// global looks a name up in the allow-list. Nothing is imported.
func (d *decoder) global() error {
	module, name, err := d.globalName()
	if err != nil {
		return err
	}
	g, ok := lookupGlobal(module, name)
	if !ok {
		return d.forbidden("global %.100q is not read: send dicts, lists, str, bytes, numbers or NumPy arrays", module+"."+name)
	}
	return d.push(g)
}

// globalName reads the two names from the body (GLOBAL) or takes them from the
// stack (STACK_GLOBAL).
func (d *decoder) globalName() (module, name string, err error) {
	if d.op == opGlobal {
		first, err := d.line(maxName)
		if err != nil {
			return "", "", err
		}
		second, err := d.line(maxName)
		return string(first), string(second), err
	}
	names, err := d.pop(2)
	if err != nil {
		return "", "", err
	}
	module, okModule := names[0].(string)
	name, okName := names[1].(string)
	if !okModule || !okName {
		return "", "", d.malformed("names a global by %s and %s, want two str", TypeName(names[0]), TypeName(names[1]))
	}
	if len(module) > maxName || len(name) > maxName {
		return "", "", d.forbidden("global %.40q.%.40q… has a name of more than %d bytes", module, name, maxName)
	}
	return module, name, nil
}

// reduce turns a global and its arguments into a value. It is a switch over
// what CPython and NumPy write; no function of the sender's is ever called.
func (d *decoder) reduce() error {
	pair, err := d.pop(2)
	if err != nil {
		return err
	}
	g, okGlobal := pair[0].(global)
	tuple, okArgs := pair[1].(*Tuple)
	if !okGlobal || !okArgs {
		return d.malformed("calls a %s with a %s, want a global and a tuple", TypeName(pair[0]), TypeName(pair[1]))
	}
	v, err := d.construct(g, tuple.Items)
	if err != nil {
		return err
	}
	return d.push(v)
}

func (d *decoder) construct(g global, args []Value) (Value, error) {
	switch g {
	case globalEncode:
		return d.encodeLatin1(args)
	case globalByteArray:
		return d.byteArray(args)
	case globalComplex:
		return d.complexNumber(args)
	case globalDefaultDict:
		return d.defaultDict(args)
	case globalDType:
		return d.newDType(args)
	case globalReconstruct:
		return d.newArray(args)
	case globalScalar:
		return d.scalar(args)
	case globalFromBuffer:
		return d.fromBuffer(args)
	case globalBytes, globalList, globalDict, globalOrderedDict:
		if len(args) != 0 {
			return nil, d.forbidden("%v with %d arguments, want none", g, len(args))
		}
		return emptyOf(g), nil
	}
	return nil, d.forbidden("%v cannot be called", g)
}

func emptyOf(g global) Value {
	switch g {
	case globalBytes:
		return []byte{}
	case globalList:
		return &List{}
	default:
		return &Dict{}
	}
}

// encodeLatin1 makes the bytes which protocols 1 and 2 write as text:
// _codecs.encode(str, "latin1").
func (d *decoder) encodeLatin1(args []Value) (Value, error) {
	var text, codec string
	var ok [2]bool
	if len(args) == 2 {
		text, ok[0] = args[0].(string)
		codec, ok[1] = args[1].(string)
	}
	if !ok[0] || !ok[1] || codec != "latin1" {
		return nil, d.forbidden(`_codecs.encode is read only with a str and "latin1"`)
	}
	size := utf8.RuneCountInString(text)
	if err := d.charge(size); err != nil {
		return nil, err
	}
	b := make([]byte, 0, size)
	for _, r := range text {
		if r > 0xff {
			return nil, d.malformed("%q is not in latin1", r)
		}
		b = append(b, byte(r))
	}
	return b, nil
}

// byteArray reads bytearray() and bytearray(bytes).
func (d *decoder) byteArray(args []Value) (Value, error) {
	if len(args) == 0 {
		return []byte{}, nil
	}
	if b, ok := args[0].([]byte); ok && len(args) == 1 {
		return b, nil
	}
	return nil, d.forbidden("bytearray with %d arguments, want one bytes or none", len(args))
}

// complexNumber reads complex(float, float).
func (d *decoder) complexNumber(args []Value) (Value, error) {
	if len(args) == 2 {
		re, okRe := args[0].(float64)
		im, okIm := args[1].(float64)
		if okRe && okIm {
			return complex(re, im), nil
		}
	}
	return nil, d.forbidden("complex is read only with two floats")
}

// defaultDict reads defaultdict(), defaultdict(None), defaultdict(list) and
// defaultdict(dict). The factory is dropped: nobody here asks for absent keys.
func (d *decoder) defaultDict(args []Value) (Value, error) {
	if len(args) == 0 {
		return &Dict{}, nil
	}
	if len(args) == 1 {
		switch args[0] {
		case nil, globalList, globalDict:
			return &Dict{}, nil
		}
	}
	return nil, d.forbidden("defaultdict is read only with list, dict or None: send dict(d)")
}
