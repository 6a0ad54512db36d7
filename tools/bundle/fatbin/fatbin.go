package fatbin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// ErrUnknown is wrapped by errors about what is in a library and not understood.
var ErrUnknown = errors.New("a fat binary of an unknown form")

const (
	section    = ".nv_fatbin"
	magic      = 0xBA55ED50
	headSize   = 16 // of a container: magic, version, size of this head, size of what follows
	entryLeast = 64
	kindPTX    = 1
	kindELF    = 2
)

// Report says what was in a library and what was zeroed.
type Report struct {
	Containers, Kept, Zeroed int
	KeptBytes, ZeroedBytes   int64
}

// Arch reads the name of an architecture, sm_75 to sm_999, as a number.
func Arch(name string) (int, error) {
	digits, ok := strings.CutPrefix(name, "sm_")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 10 || n > 999 || digits[0] == '0' {
		return 0, fmt.Errorf("architecture %q, want sm_ and a number such as sm_90", name)
	}
	return n, nil
}

// Thin zeroes in a library what cards of an architecture, e.g. 90, do not run. Of a container
// without that architecture it keeps the newest earlier one of the same generation, whose code
// runs there too, and always PTX. A library without a fat binary stays as it is and its report
// is zero. Where the error is not nil the file is as it was.
func Thin(path string, arch int) (Report, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return Report{}, err
	}
	holes, r, err := plan(file, arch)
	if err != nil {
		return Report{}, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	for _, h := range holes {
		if err := zero(file, h); err != nil {
			return Report{}, errors.Join(err, file.Close())
		}
	}
	return r, file.Close()
}

// hole is a stretch of the file.
type hole struct{ at, size int64 }

func zero(w io.WriterAt, h hole) error {
	empty := make([]byte, min(h.size, 1<<20))
	for h.size > 0 {
		n, err := w.WriteAt(empty[:min(h.size, int64(len(empty)))], h.at)
		if err != nil {
			return err
		}
		h.at, h.size = h.at+int64(n), h.size-int64(n)
	}
	return nil
}

// plan finds what is to be zeroed, all of it before anything is.
func plan(r io.ReaderAt, arch int) (holes []hole, rep Report, err error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, rep, err
	}
	for _, s := range f.Sections {
		if s.Name != section || s.Type == elf.SHT_NOBITS {
			continue
		}
		if s.Flags&elf.SHF_COMPRESSED != 0 {
			return nil, rep, fmt.Errorf("%w: section %s is compressed", ErrUnknown, section)
		}
		data, err := s.Data()
		if err != nil {
			return nil, rep, err
		}
		found, err := containers(data, arch, &rep)
		if err != nil {
			return nil, rep, err
		}
		for _, h := range found {
			holes = append(holes, hole{h.at + int64(s.Offset), h.size}) //nolint:gosec // within the file
		}
	}
	if rep.Containers > 0 && rep.Kept == 0 {
		return nil, rep, fmt.Errorf("it holds nothing that runs on sm_%d", arch)
	}
	return holes, rep, nil
}

// containers reads the section, one container behind the other with zeros between them.
func containers(data []byte, arch int, rep *Report) (holes []hole, err error) {
	for at := 0; ; {
		rest := bytes.TrimLeft(data[at:], "\x00")
		if len(rest) == 0 {
			return holes, nil
		}
		at = len(data) - len(rest)
		if at%8 != 0 || len(rest) < headSize || binary.LittleEndian.Uint32(rest) != magic {
			return nil, fmt.Errorf("%w: no container at %#x of %s", ErrUnknown, at, section)
		}
		version, head, size := binary.LittleEndian.Uint16(rest[4:]), binary.LittleEndian.Uint16(rest[6:]), binary.LittleEndian.Uint64(rest[8:])
		if version != 1 || head != headSize || size > uint64(len(rest)-headSize) {
			return nil, fmt.Errorf("%w: the container at %#x has version %d, a head of %d and %d bytes", ErrUnknown, at, version, head, size)
		}
		entries, err := entriesOf(rest[headSize:headSize+int(size)], at+headSize) //nolint:gosec // within the section
		if err != nil {
			return nil, err
		}
		rep.Containers++
		best := best(entries, arch)
		for _, e := range entries {
			if e.kind == kindPTX || e.arch == best {
				rep.Kept++
				rep.KeptBytes += e.size
				continue
			}
			rep.Zeroed++
			rep.ZeroedBytes += e.size
			holes = append(holes, e.hole)
		}
		at += headSize + int(size) //nolint:gosec // within the section
	}
}

// entry is one architecture's code; its hole is what is behind its header.
type entry struct {
	hole
	kind, arch int
}

func entriesOf(data []byte, at int) (out []entry, err error) {
	for len(data) > 0 {
		if len(data) < entryLeast {
			return nil, fmt.Errorf("%w: %d bytes behind the last entry at %#x", ErrUnknown, len(data), at)
		}
		kind, head := binary.LittleEndian.Uint16(data), binary.LittleEndian.Uint32(data[4:])
		size, arch := binary.LittleEndian.Uint64(data[8:]), binary.LittleEndian.Uint32(data[28:])
		if kind != kindPTX && kind != kindELF || head < entryLeast || uint64(head) > uint64(len(data)) ||
			size > uint64(len(data))-uint64(head) || arch < 10 || arch > 999 {
			return nil, fmt.Errorf("%w: the entry at %#x has kind %d, a head of %d, %d bytes and architecture %d", ErrUnknown, at, kind, head, size, arch)
		}
		out = append(out, entry{hole{int64(at) + int64(head), int64(size)}, int(kind), int(arch)}) //nolint:gosec // checked
		whole := int(head) + int(size)                                                             //nolint:gosec // checked
		data, at = data[whole:], at+whole
	}
	return out, nil
}

// best is the architecture whose machine code runs on arch: the newest of its generation that
// is not newer; 0 if there is none.
func best(entries []entry, arch int) (found int) {
	for _, e := range entries {
		if e.kind == kindELF && e.arch/10 == arch/10 && e.arch <= arch {
			found = max(found, e.arch)
		}
	}
	return found
}
