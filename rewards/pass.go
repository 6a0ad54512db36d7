package rewards

import "sync/atomic"

// RunOption changes one Run or RunGroup.
type RunOption func(*pass)

// OnEnd sets a function that is called when a component is finished with the pass: its goroutine
// has returned, even if its scorer was abandoned, or the component does not run in this pass.
// Components that score groups do not run in Run, unless the sample is a group of its own, and only
// they run in RunGroup. A component that does not run ends at the beginning of the pass.
//
// The numbers are the indices of Manager.Concurrencies. told is called exactly once for each
// component, from any goroutine and possibly concurrently, and never after Done is closed. It must
// return quickly.
func OnEnd(told func(component int)) RunOption {
	return func(p *pass) { p.told = told }
}

// Absent sets Group.Absent: what is known about the members of a group that RunGroup does not get.
func Absent(members map[string]string) RunOption { return func(p *pass) { p.absent = members } }

// pass is one Run or RunGroup on its way.
type pass struct {
	m     *Manager
	done  chan struct{}       // closed when all have left
	left  atomic.Int32        // the call itself, and the goroutines of its components
	told  func(component int) // nil: nobody wants to know what has ended
	ended []atomic.Bool       // by component, where told is set
	owned []bool              // likewise: a goroutine ends it; only the call's own touches it
	read  []*Sample           // whose pixels may be read until all have left; likewise

	over func() // told when all have left; nil: nobody wants to know

	returns bool              // Return
	kept    []ComponentResult // Kept
	absent  map[string]string // Absent
}

// reads notes that components of the pass read the sample's pixels.
func (p *pass) reads(s *Sample) { p.read = append(p.read, s) }

// newPass begins a pass, which the caller closes.
func (m *Manager) newPass(done chan struct{}, opts []RunOption) *pass {
	p := &pass{m: m, done: done}
	for _, o := range opts {
		o(p)
	}
	if p.told != nil {
		p.ended, p.owned = make([]atomic.Bool, m.count()), make([]bool, m.count())
	}
	p.left.Store(1)
	return p
}

// run counts the goroutine of a component, which ends it and leaves.
func (p *pass) run(component int) {
	p.left.Add(1)
	if p.told != nil {
		p.owned[component] = true
	}
}

// close ends what no goroutine does, and leaves.
func (p *pass) close() {
	for i, owned := range p.owned {
		if !owned {
			p.end(i)
		}
	}
	p.leave()
}

func (p *pass) leave() {
	if p.left.Add(-1) > 0 {
		return
	}
	for _, s := range p.read { // what its pixels have booked, when nobody reads them any more
		for _, m := range s.Media {
			m.Forget()
		}
	}
	if p.over != nil {
		p.over()
	}
	close(p.done)
}

// end says that the pass is finished with a component, if it is there and has not ended
// before. The caller has not left.
func (p *pass) end(component int) {
	if component < len(p.ended) && p.ended[component].CompareAndSwap(false, true) {
		p.told(component)
	}
}

// endComponents ends the components for which over is true.
func (p *pass) endComponents(over func(i int, t *Component) bool) {
	if p.told == nil {
		return
	}
	for i := range p.m.cfg.Components {
		if over(i, &p.m.cfg.Components[i]) {
			p.end(i)
		}
	}
}
