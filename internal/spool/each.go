package spool

import (
	"cmp"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
)

// Kept is a live record in a call of Each. It is valid during the call.
type Kept struct {
	Kind  Kind
	Run   string
	Epoch uint64
	ID    string
	Meta  []byte
	Size  int64  // size of the body in bytes
	Sum   uint32 // CRC-32C of the body
	// Body is the reader of the body. The caller must compare the checksum.
	Body io.Reader
}

// Bytes reads the body and checks its checksum. The body must not have been read before.
func (k *Kept) Bytes() ([]byte, error) {
	b, err := io.ReadAll(k.Body)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != k.Size || crc32.Checksum(b, castagnoli()) != k.Sum {
		return nil, ErrDamaged
	}
	return b, nil
}

// Each calls use with each stored record: all runs, then all members, results and samples, each
// kind in the order in which the records were first written. A record for which use returns
// ErrDamaged is counted and dropped; any other error ends Each. use must not call methods of the
// spool except Later.
func (s *Spool) Each(use func(k *Kept) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.runs)) {
		if err := use(&Kept{Kind: Run, Run: name, Epoch: s.runs[name].epoch, Body: eof{}}); err != nil {
			return err
		}
	}
	for _, kind := range []Kind{Member, Result, Sample} {
		for _, l := range s.listed(kind) {
			if err := s.show(kind, l, use); err != nil {
				return err
			}
		}
	}
	return nil
}

// eof is an empty body.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// listing is a live record by its name.
type listing struct {
	run *kept
	of  string // the run's name
	id  string
	*place
}

func (s *Spool) listed(kind Kind) []listing {
	var all []listing
	for name, k := range s.runs {
		for id, p := range k.byKind[kind] {
			all = append(all, listing{k, name, id, p})
		}
	}
	slices.SortFunc(all, func(a, b listing) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// show hands out one record.
func (s *Spool) show(kind Kind, l listing, use func(k *Kept) error) error {
	f, err := os.Open(l.seg.path)
	if err == nil {
		defer f.Close()
		var h head
		if h, err = readHead(f, l.at, l.seg.size, l.seg.mark, make([]byte, firstRead)); err == nil {
			err = use(&Kept{
				Kind: kind, Run: h.run, Epoch: h.epoch, ID: h.id, Meta: h.meta, Size: h.body, Sum: h.sum,
				Body: io.NewSectionReader(f, l.at+h.size, h.body),
			})
		}
	}
	if err == nil || !errors.Is(err, ErrDamaged) {
		return err
	}
	s.skipped(l.seg, l.at, l.total(), err)
	s.remove(l.run, kind, l.id)
	s.prune(l.of, l.run)
	return nil
}
