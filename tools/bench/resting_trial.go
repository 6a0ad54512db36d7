package main

import (
	"context"
	"errors"
)

// idleConnections are beside those that send, in restingTrial.
const idleConnections = 60

// restingTrial is the throughput of a few connections, alone and beside many that have sent
// something and now send nothing.
type restingTrial struct {
	alone, beside *transportTrial
}

func newIdleConnections(ctx context.Context, p sampleKind, o Options) (_ Trial, err error) {
	t := &restingTrial{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for _, side := range []struct {
		to    **transportTrial
		lanes int
	}{{&t.alone, lanes}, {&t.beside, lanes + idleConnections}} {
		*side.to = &transportTrial{p: p, lasting: o.Lasting}
		if err := (*side.to).prepare(); err != nil {
			return nil, err
		}
		if (*side.to).node, err = newNode(ctx, noopNode(side.lanes)); err != nil {
			return nil, err
		}
	}
	for lane := range lanes + idleConnections {
		if err := t.beside.ours(ctx, lane); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Measure implements Trial.
func (t *restingTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	sides := []struct {
		name string
		of   *transportTrial
	}{{"alone", t.alone}, {"beside", t.beside}}
	for i := range sides {
		s := sides[(i+rep)%2]
		if err := s.of.warm(ctx, s.of.ours); err != nil {
			return nil, err
		}
		o, err := closedLoop(ctx, s.of.ours, lanes, s.of.p.window, s.of.lasting)
		if err != nil {
			return nil, err
		}
		r[s.name+"_per_s"] = o.perSecond()
		r[othersCores] = max(r[othersCores], o.others())
	}
	return r, nil
}

// Close implements Trial.
func (t *restingTrial) Close() error {
	var errs []error
	for _, side := range []*transportTrial{t.alone, t.beside} {
		if side != nil {
			errs = append(errs, side.Close())
		}
	}
	return errors.Join(errs...)
}
