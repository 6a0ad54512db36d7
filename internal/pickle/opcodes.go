package pickle

import (
	"cmp"
	"fmt"
)

// The opcodes that are read, all others being refused. The names are those of
// CPython's pickletools.
const (
	opProto           = 0x80
	opFrame           = 0x95
	opStop            = '.'
	opMark            = '('
	opNone            = 'N'
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opInt             = 'I' // text; protocol 1 writes True and False so
	opLong            = 'L' // text; protocol 1 writes ints beyond 32 bits so
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opLong1           = 0x8a
	opBinFloat        = 'G'
	opShortBinBytes   = 'C'
	opBinBytes        = 'B'
	opBinBytes8       = 0x8e
	opByteArray8      = 0x96
	opShortBinUnicode = 0x8c
	opBinUnicode      = 'X'
	opBinUnicode8     = 0x8d
	opEmptyList       = ']'
	opAppend          = 'a'
	opAppends         = 'e'
	opEmptyDict       = '}'
	opSetItem         = 's'
	opSetItems        = 'u'
	opEmptyTuple      = ')'
	opTuple           = 't'
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opMemoize         = 0x94
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
	opGlobal          = 'c'
	opStackGlobal     = 0x93
	opReduce          = 'R'
	opBuild           = 'b'
)

// opName gives pickletools' name of an opcode, refused ones included, because
// the name in a refusal is what a user can look up.
func opName(op byte) string {
	return cmp.Or(acceptedNames[op], protocol0Names[op], refusedNames[op], fmt.Sprintf("opcode 0x%02x", op))
}

//nolint:gochecknoglobals // a table
var acceptedNames = map[byte]string{
	opProto: "PROTO", opFrame: "FRAME", opStop: "STOP", opMark: "MARK", opNone: "NONE",
	opNewTrue: "NEWTRUE", opNewFalse: "NEWFALSE", opInt: "INT", opLong: "LONG", opBinInt: "BININT",
	opBinInt1: "BININT1", opBinInt2: "BININT2", opLong1: "LONG1", opBinFloat: "BINFLOAT",
	opShortBinBytes: "SHORT_BINBYTES", opBinBytes: "BINBYTES", opBinBytes8: "BINBYTES8",
	opByteArray8: "BYTEARRAY8", opShortBinUnicode: "SHORT_BINUNICODE", opBinUnicode: "BINUNICODE",
	opBinUnicode8: "BINUNICODE8", opEmptyList: "EMPTY_LIST", opAppend: "APPEND", opAppends: "APPENDS",
	opEmptyDict: "EMPTY_DICT", opSetItem: "SETITEM", opSetItems: "SETITEMS",
	opEmptyTuple: "EMPTY_TUPLE", opTuple: "TUPLE", opTuple1: "TUPLE1", opTuple2: "TUPLE2",
	opTuple3: "TUPLE3", opMemoize: "MEMOIZE", opBinPut: "BINPUT", opLongBinPut: "LONG_BINPUT",
	opBinGet: "BINGET", opLongBinGet: "LONG_BINGET", opGlobal: "GLOBAL", opStackGlobal: "STACK_GLOBAL",
	opReduce: "REDUCE", opBuild: "BUILD",
}

// protocol0Names names the opcodes that CPython writes in protocol 0 only. A
// protocol-0 body has no header, so they are what it is known by.
//
//nolint:gochecknoglobals // a table
var protocol0Names = map[byte]string{
	'V': "UNICODE", 'S': "STRING", 'F': "FLOAT", 'p': "PUT", 'g': "GET", 'l': "LIST", 'd': "DICT",
}

// refusedNames names the opcodes that are refused by intent.
//
//nolint:gochecknoglobals // a table
var refusedNames = map[byte]string{
	'P': "PERSID", 'Q': "BINPERSID", 'i': "INST", 'o': "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX",
	0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x8b: "LONG4", '0': "POP", '1': "POP_MARK", '2': "DUP",
	'T': "BINSTRING", 'U': "SHORT_BINSTRING", 0x8f: "EMPTY_SET", 0x90: "ADDITEMS", 0x91: "FROZENSET",
	0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}
