package pickle

import "fmt"

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
	if name := acceptedName(op); name != "" {
		return name
	}
	if name := protocol0Name(op); name != "" {
		return name
	}
	if name := refusedName(op); name != "" {
		return name
	}
	return fmt.Sprintf("opcode 0x%02x", op)
}

func acceptedName(op byte) string {
	switch op {
	case opProto:
		return "PROTO"
	case opFrame:
		return "FRAME"
	case opStop:
		return "STOP"
	case opMark:
		return "MARK"
	case opNone:
		return "NONE"
	case opNewTrue:
		return "NEWTRUE"
	case opNewFalse:
		return "NEWFALSE"
	case opInt:
		return "INT"
	case opLong:
		return "LONG"
	case opBinInt:
		return "BININT"
	case opBinInt1:
		return "BININT1"
	case opBinInt2:
		return "BININT2"
	case opLong1:
		return "LONG1"
	case opBinFloat:
		return "BINFLOAT"
	case opShortBinBytes:
		return "SHORT_BINBYTES"
	case opBinBytes:
		return "BINBYTES"
	case opBinBytes8:
		return "BINBYTES8"
	case opByteArray8:
		return "BYTEARRAY8"
	case opShortBinUnicode:
		return "SHORT_BINUNICODE"
	case opBinUnicode:
		return "BINUNICODE"
	case opBinUnicode8:
		return "BINUNICODE8"
	}
	return acceptedContainerName(op)
}

func acceptedContainerName(op byte) string {
	switch op {
	case opEmptyList:
		return "EMPTY_LIST"
	case opAppend:
		return "APPEND"
	case opAppends:
		return "APPENDS"
	case opEmptyDict:
		return "EMPTY_DICT"
	case opSetItem:
		return "SETITEM"
	case opSetItems:
		return "SETITEMS"
	case opEmptyTuple:
		return "EMPTY_TUPLE"
	case opTuple:
		return "TUPLE"
	case opTuple1:
		return "TUPLE1"
	case opTuple2:
		return "TUPLE2"
	case opTuple3:
		return "TUPLE3"
	case opMemoize:
		return "MEMOIZE"
	case opBinPut:
		return "BINPUT"
	case opLongBinPut:
		return "LONG_BINPUT"
	case opBinGet:
		return "BINGET"
	case opLongBinGet:
		return "LONG_BINGET"
	case opGlobal:
		return "GLOBAL"
	case opStackGlobal:
		return "STACK_GLOBAL"
	case opReduce:
		return "REDUCE"
	case opBuild:
		return "BUILD"
	}
	return ""
}

// protocol0Name names the opcodes that CPython writes in protocol 0 only. A
// protocol-0 body has no header, so they are what it is known by.
func protocol0Name(op byte) string {
	switch op {
	case 'V':
		return "UNICODE"
	case 'S':
		return "STRING"
	case 'F':
		return "FLOAT"
	case 'p':
		return "PUT"
	case 'g':
		return "GET"
	case 'l':
		return "LIST"
	case 'd':
		return "DICT"
	}
	return ""
}

// refusedName names the opcodes that are refused by intent.
func refusedName(op byte) string {
	switch op {
	case 'P':
		return "PERSID"
	case 'Q':
		return "BINPERSID"
	case 'i':
		return "INST"
	case 'o':
		return "OBJ"
	case 0x81:
		return "NEWOBJ"
	case 0x92:
		return "NEWOBJ_EX"
	case 0x82:
		return "EXT1"
	case 0x83:
		return "EXT2"
	case 0x84:
		return "EXT4"
	case 0x8b:
		return "LONG4"
	case '0':
		return "POP"
	case '1':
		return "POP_MARK"
	case '2':
		return "DUP"
	case 'T':
		return "BINSTRING"
	case 'U':
		return "SHORT_BINSTRING"
	case 0x8f:
		return "EMPTY_SET"
	case 0x90:
		return "ADDITEMS"
	case 0x91:
		return "FROZENSET"
	case 0x97:
		return "NEXT_BUFFER"
	case 0x98:
		return "READONLY_BUFFER"
	}
	return ""
}
