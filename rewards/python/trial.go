package python

import (
	"fmt"
	"slices"
)

// trial is a number of calls one of which may have ended the process that they shared.
// They run once more, in a process that no other call has: if that lives, none of them
// did it; if it dies, the calls that it held are halved into two trials, until a call is
// alone. The other calls of the function go on meanwhile in other processes.
type trial struct {
	open    int       // calls whose fate is open
	waiting []*waiter // those of them that wait for a place
}

// suspectError is the error of a call that has to run once more, in a trial.
type suspectError struct {
	trial *trial
	how   error
}

// Error implements error.
func (e *suspectError) Error() string { return fmt.Sprintf("a call ended its process: %v", e.how) }

// suspect puts the calls that a dead process held on trial, before all others: those
// whose callers wait for them. The caller holds mu.
func (p *processes) suspect(held []*entry, how error) {
	var trials []*trial
	for half := range slices.Chunk(held, max(1, (len(held)+1)/2)) {
		t := &trial{}
		for _, e := range half {
			if e.give(answer{err: &suspectError{t, how}}) {
				t.open++
			}
		}
		trials = append(trials, t)
	}
	p.trials = append(trials, p.trials...)
}

// acquit ends a call's part in a trial: it was answered, or its caller left. Nil is no
// trial.
func (p *processes) acquit(t *trial) {
	if t == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.open--
	p.match()
}

// trying is the process of the trials; nil: there is none.
func (p *processes) trying() *place {
	for _, pl := range p.places {
		if pl.trial && !pl.retired {
			return pl
		}
	}
	return nil
}

// matchTrial gives places to the calls of the first trial that is open. The process of
// the last one becomes an ordinary one. The caller holds mu.
func (p *processes) matchTrial() {
	p.trials = slices.DeleteFunc(p.trials, func(t *trial) bool { return t.open == 0 })
	pl := p.trying()
	if len(p.trials) == 0 {
		if pl != nil && pl.running == 0 {
			p.keep(pl)
		}
		return
	}
	if pl == nil && p.held > 0 { // there shall be one process
		if pl = p.emptiest(); pl == nil || pl.running > 0 {
			return
		}
		pl.trial = true
	}
	t := p.trials[0]
	for pl != nil && len(t.waiting) > 0 && pl.running < pl.conn.capacity {
		p.hand(pl, t.waiting[0])
		t.waiting = t.waiting[1:]
	}
}

// keep makes a process an ordinary one, if there is room for it: that of a trial which
// is over, or one that was started beside such a trial. The caller holds mu.
func (p *processes) keep(pl *place) {
	own := slices.ContainsFunc(p.places, func(o *place) bool { return o != pl && !o.spare && !o.retired })
	if own && !pl.spare {
		if all, _ := p.ordinary(); !p.share.take(p, pl.conn.capacity > 1, all, p.queue.Weight()) {
			p.retire(pl)
			return
		}
		pl.spare = true
	}
	pl.trial = false
}
