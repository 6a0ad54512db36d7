package sim

// dispatch starts all that can be started now.
func (p *pool) dispatch() {
	if p.cfg.Policy == PolicyRandomBlind {
		for _, at := range p.touched {
			if s := &p.servers[at]; len(s.jobs) == 0 && s.own.len() > 0 {
				p.start(at, &s.own)
			}
		}
		p.touched = p.touched[:0]
		return
	}
	for p.queue.len() > 0 {
		at := p.pick()
		if at == nobody {
			return
		}
		p.start(at, &p.queue)
	}
	p.backUp()
}

// pick takes an idle server, or nobody if the head of the queue is to wait.
func (p *pool) pick() int32 {
	for c := range p.classes {
		if len(p.classes[c].idle) > 0 && p.worth(c) {
			return p.takeIdle(c)
		}
	}
	return nobody
}

func (p *pool) takeIdle(c int) int32 {
	idle := p.classes[c].idle
	i := p.draw.IntN(len(idle))
	at := idle[i]
	idle[i] = idle[len(idle)-1]
	p.classes[c].idle = idle[:len(idle)-1]
	return at
}

// worth says whether a sample that starts now on a server of class c is expected
// to be scored before all the others would be on the faster ones alone. It is a
// guess from what a gateway knows: the mean service time, the number of samples
// still to come, and how fast they came until now.
func (p *pool) worth(c int) bool {
	faster, busy := 0.0, 0
	for _, f := range p.classes[:c] {
		faster += f.speed * float64(f.alive)
		busy += f.alive - len(f.idle)
	}
	if faster == 0 {
		return true
	}
	mean := p.mean()
	here := p.now + mean/p.classes[c].speed
	arrived, all := p.next-p.first, len(p.jobs)-p.first
	lastArrival := p.now
	if arrived < all {
		lastArrival = p.began + (p.now-p.began)*float64(all)/float64(max(arrived, 1))
	}
	waiting := float64(p.queue.len()+all-arrived) + float64(busy)/2 // who is in service is half way
	elsewhere := max(lastArrival+mean/p.classes[0].speed, p.now+waiting*mean/faster)
	return here <= elsewhere
}

// mean is the mean service time on a server of speed 1.
func (p *pool) mean() float64 { return p.work / float64(len(p.jobs)) }

// start gives a server the head of a queue, as many as it takes at once.
func (p *pool) start(at int32, from *fifo) {
	s := &p.servers[at]
	s.began, s.backup = p.now, false
	for len(s.jobs) < max(1, p.cfg.Batch.Max) && from.len() > 0 {
		j := from.pop()
		p.jobs[j].on = [2]int32{at, nobody}
		s.jobs = append(s.jobs, j)
	}
	took := p.run(at)
	if p.cfg.BackupAfter > 0 {
		if after := p.cfg.BackupAfter * p.mean() * p.pace; after < took {
			p.events.push(event{at: p.now + after, kind: overdue, server: at, token: s.token})
		}
	}
}

// run lets a server score what it has and returns how long it will take.
func (p *pool) run(at int32) float64 {
	s := &p.servers[at]
	took := p.jobs[s.jobs[0]].work
	if p.cfg.Batch.Max > 0 {
		took = p.cfg.Batch.Seconds(len(s.jobs))
	}
	took /= s.speed
	if p.cfg.Stragglers.Share > 0 && p.draw.Float64() < p.cfg.Stragglers.Share {
		took *= p.cfg.Stragglers.Factor
	}
	p.events.push(event{at: p.now + took, kind: done, server: at, token: s.token})
	return took
}

// backUp sends overdue attempts a second one, while servers are idle; it is called
// when nothing is queued.
func (p *pool) backUp() {
	limit := max(1, int(p.cfg.BackupShare*float64(len(p.jobs))))
	for len(p.late) > 0 && p.backups < limit {
		n := p.late[0]
		j := &p.jobs[n]
		if j.done || j.backedUp || j.on[0] == nobody {
			p.late = p.late[1:]
			continue
		}
		at := int32(nobody)
		for c := range p.classes {
			if len(p.classes[c].idle) > 0 {
				at = p.takeIdle(c)
				break
			}
		}
		if at == nobody {
			return
		}
		p.late = p.late[1:]
		p.backups++
		j.backedUp, j.on[1] = true, at
		s := &p.servers[at]
		s.began, s.backup, s.jobs = p.now, true, append(s.jobs, n)
		p.run(at)
	}
}
