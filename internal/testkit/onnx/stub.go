package onnx

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Stub writes a shared library that needs others and has nothing else.
func Stub(tb testing.TB, path string, needed ...string) {
	tb.Helper()
	names, dynamic := []byte{0}, []elf.Dyn64{}
	for _, name := range needed {
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(len(names))})
		names = append(append(names, name...), 0)
	}
	dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	sections := []byte("\x00.dynstr\x00.dynamic\x00.shstrtab\x00")
	const head, section = 64, 64
	at := uint64(head)
	size := uint64(16 * len(dynamic))
	table := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: at, Size: uint64(len(names)), Addralign: 1},
		{Name: 9, Type: uint32(elf.SHT_DYNAMIC), Off: at + uint64(len(names)), Size: size, Link: 1, Entsize: 16, Addralign: 1},
		{Name: 18, Type: uint32(elf.SHT_STRTAB), Off: at + uint64(len(names)) + size, Size: uint64(len(sections)), Addralign: 1},
	}
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Shoff: table[3].Off + table[3].Size, Ehsize: head, Shentsize: section, Shnum: uint16(len(table)), Shstrndx: 3,
	}
	var out bytes.Buffer
	for _, part := range []any{header, names, dynamic, sections, table} {
		require.NoError(tb, binary.Write(&out, binary.LittleEndian, part))
	}
	require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(tb, os.WriteFile(path, out.Bytes(), 0o600))
}
