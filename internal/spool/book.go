package spool

import "slices"

// kept are the live records of one run.
type kept struct {
	epoch  uint64
	run    *place // nil: only later records say which epoch it is
	byKind [kinds]map[string]*place
}

// place is where a live record lies.
type place struct {
	seg  *segment
	at   int64
	head int64 // bytes before the body
	body int64
	sum  uint32
	seq  uint64
}

func (p *place) total() int64 { return p.head + p.body }

// take books a record that lies on disk. The caller holds mu, or is alone.
func (s *Spool) take(h *head, p *place) {
	r := s.runs[h.run]
	switch {
	case h.kind == Gone:
		if r != nil && r.epoch <= h.epoch {
			s.forget(h.run, r)
		}
		return
	case r != nil && h.epoch < r.epoch, r == nil && h.kind == Drop:
		return // of an epoch that is over
	case r == nil || h.epoch > r.epoch:
		if r != nil {
			s.forget(h.run, r)
		}
		r = &kept{epoch: h.epoch}
		s.runs[h.run] = r
	}
	switch h.kind {
	case Drop:
		s.remove(r, h.of, h.id)
		s.prune(h.run, r)
	case Run:
		if r.run != nil {
			s.unbook(r.run)
		}
		r.run = p
		s.book(p)
	default:
		s.remove(r, h.kind, h.id)
		switch h.kind {
		case Result:
			s.remove(r, Sample, h.id)
		case Sample: // its id is new again
			s.remove(r, Result, h.id)
		}
		if r.byKind[h.kind] == nil {
			r.byKind[h.kind] = map[string]*place{}
		}
		r.byKind[h.kind][h.id] = p
		s.book(p)
	}
}

func (s *Spool) book(p *place) {
	p.seg.live += p.total()
	s.live += p.total()
	s.records++
}

func (s *Spool) unbook(p *place) {
	p.seg.live -= p.total()
	s.live -= p.total()
	s.records--
}

func (s *Spool) remove(r *kept, kind Kind, id string) {
	if p := r.byKind[kind][id]; p != nil {
		delete(r.byKind[kind], id)
		s.unbook(p)
	}
}

// prune ends a run of which nothing is left.
func (s *Spool) prune(name string, r *kept) {
	if r.run == nil && !slices.ContainsFunc(r.byKind[:], func(of map[string]*place) bool { return len(of) > 0 }) {
		delete(s.runs, name)
	}
}

// forget ends everything of a run.
func (s *Spool) forget(name string, r *kept) {
	if r.run != nil {
		s.unbook(r.run)
	}
	for _, of := range r.byKind {
		for _, p := range of {
			s.unbook(p)
		}
	}
	delete(s.runs, name)
}
