package outbound

// Hold stops new requests to the endpoint with that URL until Release, for endpoints that this
// program starts and stops. why is the reason, for people. Requests in flight continue. A call for
// which no other endpoint is in service waits, or is returned if its context requests this
// (rewards.Returning). forGood means that the endpoint will never accept requests; calls fail
// permanently once this is true for all endpoints. Hold does nothing if no endpoint has the URL.
func (g *Upstream) Hold(url, why string, forGood bool) {
	g.change(url, func(e *endpoint) {
		e.held, e.unable = why, forGood
	})
}

// Release allows requests to an endpoint again and closes its breaker.
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

// Hold calls Upstream.Hold.
func (s *Switch) Hold(url, why string, forGood bool) { s.now.Load().Hold(url, why, forGood) }

// Release calls Upstream.Release.
func (s *Switch) Release(url string) { s.now.Load().Release(url) }

// Stats calls Upstream.Stats.
func (s *Switch) Stats() Stats { return s.now.Load().Stats() }
