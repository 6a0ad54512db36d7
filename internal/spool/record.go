package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Kind is the kind of a record.
type Kind uint8

// The kinds of records.
const (
	// Run sets the current epoch of a run, and ends all records of the run's earlier epochs. A
	// record of a later epoch has the same effect.
	Run Kind = 1 + iota
	// Sample is an accepted sample; its body is the frame. It ends the result with the same id.
	Sample
	// Result is the final result of a sample. It ends the sample.
	Result
	// Member is the contribution of an answered sample to its open prompt group.
	Member
	// Drop ends the record of kind Of with the same run, epoch and id.
	Drop
	// Gone ends the run with that epoch.
	Gone

	kinds
)

// String returns the name of the kind.
func (k Kind) String() string {
	if k == 0 || k >= kinds {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return [...]string{"", "run", "sample", "result", "member", "drop", "gone"}[k]
}

// Record is a record to store, or one that ends other records.
type Record struct {
	Kind  Kind
	Of    Kind // kind of the record that a Drop ends
	Run   string
	Epoch uint64
	ID    string // empty for Run and Gone
	// Meta contains small data, up to 1 MiB.
	Meta []byte
	// Body is the data, and Sum its CRC-32C. If Sum is 0 and Body is not empty, the spool computes
	// the checksum.
	Body []byte
	Sum  uint32
	// Fill, for Later, returns the body when the record is written.
	Fill func() []byte
}

// size is the record's length on disk; of one with Fill, when Body has been made.
func (r *Record) size() int64 {
	return int64(fixedBytes + len(r.Run) + len(r.ID) + len(r.Meta) + len(r.Body))
}

// Bounds of a record.
const (
	maxMetaBytes = 1 << 20
	maxNameBytes = 1<<16 - 1
)

// The head of a record, little-endian:
//
//	offset bytes
//	     0     8 mark of the segment, random: bytes of a client's picture cannot pass for a record
//	     8     1 kind
//	     9     1 of
//	    10     2 length of run
//	    12     2 length of id
//	    14     2 zero
//	    16     4 length of meta
//	    20     8 length of body
//	    28     8 number of the record, which a copy keeps
//	    36     8 epoch
//	    44     4 CRC-32C of body
//	    48     4 CRC-32C of bytes 8 to 47 and of run, id and meta
//	    52       run, id, meta; then the body
const (
	markBytes  = 8
	fixedBytes = 52
)

// The head of a segment: magic, version, mark, and the CRC-32C of these.
const (
	magic       = "rlspool\n"
	version     = 1
	segmentHead = 8 + 4 + markBytes + 4
)

// errCut is a record, or the head of a segment, that ends too soon.
var errCut = errors.New("record is cut off")

// head is a record without its body.
type head struct {
	kind, of Kind
	run, id  string
	meta     []byte
	body     int64
	seq      uint64
	epoch    uint64
	sum      uint32
	size     int64 // of all but the body
}

// total is the record's length on disk.
func (h *head) total() int64 { return h.size + h.body }

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// appendHead encodes all of a record but its body.
func appendHead(b []byte, mark [markBytes]byte, r *Record, seq uint64) []byte {
	at := len(b)
	b = append(b, mark[:]...)
	b = append(b, byte(r.Kind), byte(r.Of))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Run))) //nolint:gosec // checked
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.ID)))  //nolint:gosec // checked
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Meta))) //nolint:gosec // checked
	b = binary.LittleEndian.AppendUint64(b, uint64(len(r.Body)))
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, r.Epoch)
	b = binary.LittleEndian.AppendUint32(b, r.Sum)
	sum := crc32.Checksum(b[at+markBytes:], castagnoli())
	names := len(b) + 4
	b = append(b, 0, 0, 0, 0)
	b = append(append(append(b, r.Run...), r.ID...), r.Meta...)
	binary.LittleEndian.PutUint32(b[names-4:], crc32.Update(sum, castagnoli(), b[names:]))
	return b
}

// check reports why a record cannot be written.
func (r *Record) check() error {
	switch {
	case r.Kind == 0 || r.Kind >= kinds || (r.Of != 0) != (r.Kind == Drop) || r.Of >= kinds:
		return fmt.Errorf("%w: a record of %v, of %v", ErrInvalid, r.Kind, r.Of)
	case len(r.Run) > maxNameBytes || len(r.ID) > maxNameBytes || len(r.Meta) > maxMetaBytes:
		return fmt.Errorf("%w: a %v with a run of %d, an id of %d and %d bytes of meta", ErrInvalid, r.Kind, len(r.Run), len(r.ID), len(r.Meta))
	}
	return nil
}

// parseFixed reads the first fixedBytes of a record. The names are not there yet.
func parseFixed(b []byte, mark [markBytes]byte) (h head, run, id, meta int, err error) {
	if [markBytes]byte(b) != mark {
		return h, 0, 0, 0, ErrDamaged
	}
	h.kind, h.of = Kind(b[8]), Kind(b[9])
	run, id = int(binary.LittleEndian.Uint16(b[10:])), int(binary.LittleEndian.Uint16(b[12:]))
	meta = int(binary.LittleEndian.Uint32(b[16:]))
	body := binary.LittleEndian.Uint64(b[20:])
	h.seq, h.epoch = binary.LittleEndian.Uint64(b[28:]), binary.LittleEndian.Uint64(b[36:])
	h.sum = binary.LittleEndian.Uint32(b[44:])
	if h.kind == 0 || h.kind >= kinds || meta > maxMetaBytes || body > 1<<50 {
		return h, 0, 0, 0, ErrDamaged
	}
	h.body, h.size = int64(body), int64(fixedBytes+run+id+meta) //nolint:gosec // bounded above
	return h, run, id, meta, nil
}

// parseNames reads what follows it; b is the whole head.
func (h *head) parseNames(b []byte, run, id int) error {
	sum := crc32.Checksum(b[markBytes:fixedBytes-4], castagnoli())
	if crc32.Update(sum, castagnoli(), b[fixedBytes:]) != binary.LittleEndian.Uint32(b[fixedBytes-4:]) {
		return ErrDamaged
	}
	rest := b[fixedBytes:]
	h.run, h.id, h.meta = string(rest[:run]), string(rest[run:run+id]), append([]byte(nil), rest[run+id:]...)
	return nil
}
