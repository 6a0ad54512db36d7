package fatbin_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/tools/bundle/fatbin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ptx     = 1
	machine = 2
)

// code is one entry: its kind, its architecture and what its bytes are.
type code struct {
	kind, arch int
	fill       byte
}

// container is a container of entries of 64 bytes each behind headers of 64 and 112 bytes.
func container(codes ...code) []byte {
	var body []byte
	for i, c := range codes {
		head := make([]byte, 64+i%2*48)
		binary.LittleEndian.PutUint16(head, uint16(c.kind))
		binary.LittleEndian.PutUint16(head[2:], 0x101)
		binary.LittleEndian.PutUint32(head[4:], uint32(len(head)))
		binary.LittleEndian.PutUint64(head[8:], 64)
		binary.LittleEndian.PutUint32(head[28:], uint32(c.arch))
		body = append(append(body, head...), bytes.Repeat([]byte{c.fill}, 64)...)
	}
	out := binary.LittleEndian.AppendUint32(nil, 0xBA55ED50)
	out = binary.LittleEndian.AppendUint16(out, 1)
	out = binary.LittleEndian.AppendUint16(out, 16)
	return append(binary.LittleEndian.AppendUint64(out, uint64(len(body))), body...)
}

// library writes an ELF file with one section of that name.
func library(tb testing.TB, section string, data []byte) string {
	tb.Helper()
	names := append(append([]byte{0}, section...), "\x00.names\x00"...)
	const start = 64
	text := append([]byte{}, make([]byte, start)...)
	copy(text, "\x7fELF\x02\x01\x01")
	put16, put32, put64 := binary.LittleEndian.PutUint16, binary.LittleEndian.PutUint32, binary.LittleEndian.PutUint64
	put16(text[16:], 3) // a shared object
	put16(text[18:], 62)
	put32(text[20:], 1)
	text = append(append(text, data...), names...)
	for len(text)%8 != 0 {
		text = append(text, 0)
	}
	put64(text[40:], uint64(len(text)))
	put16(text[52:], 64)
	put16(text[58:], 64)
	put16(text[60:], 3)
	put16(text[62:], 2)
	header := func(name, kind int, at, size int) {
		h := make([]byte, 64)
		put32(h, uint32(name))
		put32(h[4:], uint32(kind))
		put64(h[24:], uint64(at))
		put64(h[32:], uint64(size))
		text = append(text, h...)
	}
	header(0, 0, 0, 0)
	header(1, 1, start, len(data))
	header(len(section)+2, 3, start+len(data), len(names))
	path := filepath.Join(tb.TempDir(), "lib.so")
	require.NoError(tb, os.WriteFile(path, text, 0o600))
	return path
}

// left are the bytes of the codes that are still in the file.
func left(tb testing.TB, path string) string {
	tb.Helper()
	text, err := os.ReadFile(path)
	require.NoError(tb, err)
	var out []byte
	for c := byte('A'); c <= 'Z'; c++ {
		if bytes.Contains(text, bytes.Repeat([]byte{c}, 64)) {
			out = append(out, c)
		}
	}
	return string(out)
}

func TestOneArchitectureAndPTXAreLeft(t *testing.T) {
	t.Parallel()
	data := container(code{machine, 75, 'A'}, code{machine, 80, 'B'}, code{machine, 86, 'C'}, code{machine, 90, 'D'}, code{ptx, 90, 'E'}, code{machine, 120, 'F'})
	data = append(append(data, make([]byte, 8)...), container(code{machine, 80, 'G'}, code{machine, 120, 'H'}, code{ptx, 75, 'I'})...)
	for arch, want := range map[int]string{90: "DEI", 75: "AEI", 80: "BEGI", 86: "CEGI", 89: "CEGI", 120: "EFHI", 100: "EI"} {
		path := library(t, ".nv_fatbin", data)
		before, err := os.Stat(path)
		require.NoError(t, err)
		r, err := fatbin.Thin(path, arch)
		require.NoError(t, err)
		require.Equal(t, want, left(t, path), "sm_%d", arch)
		require.Equal(t, fatbin.Report{
			Containers: 2, Kept: len(want), Zeroed: 9 - len(want), KeptBytes: int64(64 * len(want)), ZeroedBytes: int64(64 * (9 - len(want))),
		}, r)
		after, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, before.Size(), after.Size())
	}
}

func TestALibraryWithoutAFatBinaryStaysAsItIs(t *testing.T) {
	t.Parallel()
	path := library(t, ".text", container(code{machine, 75, 'A'}))
	r, err := fatbin.Thin(path, 90)
	require.NoError(t, err)
	require.Zero(t, r)
	require.Equal(t, "A", left(t, path))
}

func TestAnUnknownFormIsLeftWhole(t *testing.T) {
	t.Parallel()
	good := container(code{machine, 75, 'A'}, code{machine, 90, 'B'})
	change := func(at int, value byte) []byte {
		out := bytes.Clone(good)
		out[at] = value
		return out
	}
	for name, data := range map[string][]byte{
		"magic":                change(0, 1),
		"version":              change(4, 2),
		"head":                 change(6, 24),
		"size":                 change(9, 0xff),
		"kind":                 change(16, 7),
		"head of an entry":     change(20, 8),
		"size of an entry":     change(25, 0xff),
		"architecture":         change(44, 1),
		"something between":    append(append(bytes.Clone(good), "something"...), good...),
		"cut":                  good[:len(good)-8],
		"a second one is not":  append(bytes.Clone(good), change(16, 7)...),
		"nothing for the card": container(code{machine, 75, 'A'}, code{machine, 80, 'B'}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := library(t, ".nv_fatbin", data)
			before, err := os.ReadFile(path)
			require.NoError(t, err)
			_, err = fatbin.Thin(path, 90)
			require.Error(t, err)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}

func TestAnArchitectureIsReadByItsName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"sm_90": 90, "sm_75": 75, "sm_120": 120} {
		n, err := fatbin.Arch(name)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	for _, name := range []string{"", "90", "sm_", "sm_9", "sm_090", "sm_9000", "compute_90", "sm_90a"} {
		_, err := fatbin.Arch(name)
		require.Error(t, err, name)
	}
}

// FuzzThin reads sections of anybody's making: they end in an error, and then the file is as it
// was, or in zeros in place of code.
func FuzzThin(f *testing.F) {
	f.Add(container(code{machine, 75, 'A'}, code{machine, 90, 'B'}, code{ptx, 90, 'C'}))
	f.Add([]byte{0x50, 0xed, 0x55, 0xba})
	f.Fuzz(func(t *testing.T, data []byte) {
		path := library(t, ".nv_fatbin", data)
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		_, failed := fatbin.Thin(path, 90)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Len(t, after, len(before))
		if failed != nil {
			require.Equal(t, before, after)
		}
	})
}
