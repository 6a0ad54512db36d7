package rewards

import "sync/atomic"

// RunOption adds something to one Run or RunGroup.
type RunOption func(*pass)

// OnEnd has told called when a component is finished with the pass: its goroutine has
// returned, that of an abandoned scorer included, or it does not run in this pass. Those
// that look at groups do not run in Run, unless the sample is a group of its own, and only
// they run in RunGroup; what does not run ends at the beginning.
//
// Components are numbered as in Manager.Components. Told is called exactly once for each,
// from any goroutine, several times at once, and not any more when Done is closed. It must
// return soon.
func OnEnd(told func(component int)) RunOption {
	return func(p *pass) { p.told = told }
}

// Absent says what is known of the members of a group that RunGroup is not given: Group.Absent.
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
