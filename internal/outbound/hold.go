package outbound

// Hold keeps requests from the endpoint with a URL, which somebody here starts, puts to sleep and
// ends, until Release. why says in the words of a person what is the matter with it. Requests that
// are under way go on; a call for which no other endpoint is in service waits, or is returned where
// its context says so. forGood: it will never take requests, and calls fail permanently once that
// is so of all endpoints. A URL of no endpoint changes nothing.
func (g *Upstream) Hold(url, why string, forGood bool) {
	g.change(url, func(e *endpoint) {
		e.held, e.unable = why, forGood
	})
}

// Release has requests go to an endpoint again, whatever its breaker had found before.
func (g *Upstream) Release(url string) {
	g.change(url, func(e *endpoint) {
		e.held, e.unable, e.unreached = "", false, false
		e.breaker.close()
		e.pace = pace{} // it may be another server
	})
}

func (g *Upstream) change(url string, what func(e *endpoint)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.endpoints {
		if e.url.String() == url {
			what(e)
			g.announce()
		}
	}
}

// inService reports whether an endpoint takes requests that are no probes. The caller holds mu.
func (e *endpoint) inService() bool { return e.held == "" && e.breaker.state == Closed }

// held reports whether nothing may be sent to an endpoint.
func (g *Upstream) held(e *endpoint) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return e.held != ""
}

// unable reports whether no endpoint will ever do what is asked. The caller holds mu.
func (g *Upstream) unable() bool {
	for _, e := range g.endpoints {
		if !e.unable {
			return false
		}
	}
	return true
}

// Hold is that of Upstream.
func (s *Switch) Hold(url, why string, forGood bool) { s.now.Load().Hold(url, why, forGood) }

// Release is that of Upstream.
func (s *Switch) Release(url string) { s.now.Load().Release(url) }

// Stats are those of Upstream.
func (s *Switch) Stats() Stats { return s.now.Load().Stats() }
