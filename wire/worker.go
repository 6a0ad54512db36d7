package wire

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// WorkerInfo is what a worker tells of itself.
type WorkerInfo struct {
	// ID is unique among live workers.
	ID string `json:"id"`
	// Busy is how many samples it scores now, those of scorers that overran included.
	Busy int `json:"busy"`
	// State is "ready", "broken" (it reaches no gateway), "sick" (too many scorers of
	// every profile overran) or "draining".
	State string `json:"state"`
	// Profiles are what it serves, each with the queue from which it takes the tickets. A
	// worker that names none takes what comes.
	Profiles []ProfileInfo `json:"profiles,omitempty"`
	// Host is the machine it runs on, Devices and Models what it scores with there, such
	// as cuda:0 and ppocr-v4-mobile.
	Host    string   `json:"host,omitempty"`
	Devices []string `json:"devices,omitempty"`
	Models  []string `json:"models,omitempty"`
	Version string   `json:"version,omitempty"`
	// Scored and Failed count samples since its start.
	Scored uint64 `json:"scored"`
	Failed uint64 `json:"failed"`
	// Started is when this life of the worker began: one that is restarted under the same
	// name is another worker to the gateway's breakers.
	Started time.Time `json:"started,omitzero"`
	// Seen is when the gateway last heard of it.
	Seen time.Time `json:"seen"`
	// Rev is the gateway's own: it is another number whenever anything but a counter has
	// changed (see Resembles). 0: nobody has looked.
	Rev uint64 `json:"-"`
}

// ProfileInfo is what a worker tells of one profile.
type ProfileInfo struct {
	// Name is the profile's; empty: the default one. Queue is where its tickets are.
	Name  string `json:"name,omitempty"`
	Queue string `json:"queue"`
	// Capacity is how many samples of the profile the worker can use at a time; Narrow how
	// many can begin at a time, where a component has fewer executors than another.
	Capacity int `json:"capacity"`
	Narrow   int `json:"narrow,omitempty"`
	// Used is how many samples of the profile the worker has, by their gateway.
	Used map[string]int `json:"used,omitempty"`
	// State says why the worker takes no samples of the profile although it is ready, or one
	// at most, and Waits for what it waits then. State is empty while it takes them; Waits may
	// then still say that a dependency does not answer.
	State string `json:"state,omitempty"`
	Waits string `json:"waits,omitempty"`
}

// Resembles reports whether two words of a worker differ in counters at most: Busy, Scored,
// Failed, what is used of each profile, and when they were heard.
func (w *WorkerInfo) Resembles(o *WorkerInfo) bool {
	return w.ID == o.ID && w.State == o.State && w.Host == o.Host && w.Version == o.Version && w.Started.Equal(o.Started) &&
		slices.Equal(w.Devices, o.Devices) && slices.Equal(w.Models, o.Models) &&
		slices.EqualFunc(w.Profiles, o.Profiles, func(p, q ProfileInfo) bool {
			return p.Name == q.Name && p.Queue == q.Queue && p.Capacity == q.Capacity && p.Narrow == q.Narrow && p.State == q.State && p.Waits == q.Waits
		})
}

// longestWord bounds what a worker tells of itself in bytes. A profile is some 60 of them.
const longestWord = 1 << 20

// DecodeWorkerInfo reads the JSON of what a worker tells of itself; before is what it told
// last, whose strings are used again. Names that it does not know are another release's and
// are passed over.
func DecodeWorkerInfo(b []byte, before *WorkerInfo) (w WorkerInfo, err error) {
	if len(b) > longestWord {
		return w, fmt.Errorf("%w: worker announcement of %d bytes, want at most %d", ErrTooLarge, len(b), longestWord)
	}
	if before == nil {
		before = &WorkerInfo{}
	}
	s := scanner{b: b}
	moment := func(t *time.Time) error {
		text, err := s.str()
		if err == nil {
			err = t.UnmarshalText(text)
		}
		return err
	}
	err = s.object(func(key []byte) error {
		switch string(key) {
		case "id":
			return s.again(&w.ID, before.ID)
		case "busy":
			return s.count(&w.Busy)
		case "state":
			return s.again(&w.State, before.State)
		case "profiles":
			w.Profiles = make([]ProfileInfo, 0, len(before.Profiles))
			return s.array(func() error {
				var p, old ProfileInfo
				if i := len(w.Profiles); i < len(before.Profiles) {
					old = before.Profiles[i]
				}
				err := s.profile(&p, &old)
				w.Profiles = append(w.Profiles, p)
				return err
			})
		case "host":
			return s.again(&w.Host, before.Host)
		case "devices":
			return s.names(&w.Devices, before.Devices)
		case "models":
			return s.names(&w.Models, before.Models)
		case "version":
			return s.again(&w.Version, before.Version)
		case "scored":
			return s.total(&w.Scored)
		case "failed":
			return s.total(&w.Failed)
		case "started":
			return moment(&w.Started)
		case "seen":
			return moment(&w.Seen)
		}
		_, err := s.value()
		return err
	})
	if err == nil {
		err = s.end()
	}
	return w, err
}

func (s *scanner) profile(p, before *ProfileInfo) error {
	return s.object(func(key []byte) error {
		switch string(key) {
		case "name":
			return s.again(&p.Name, before.Name)
		case "queue":
			return s.again(&p.Queue, before.Queue)
		case "capacity":
			return s.count(&p.Capacity)
		case "narrow":
			return s.count(&p.Narrow)
		case "used":
			p.Used = map[string]int{}
			return s.object(func(gateway []byte) error {
				name, n := string(gateway), 0
				err := s.count(&n)
				p.Used[name] = n
				return err
			})
		case "state":
			return s.again(&p.State, before.State)
		case "waits":
			return s.again(&p.Waits, before.Waits)
		}
		_, err := s.value()
		return err
	})
}

// again reads a string that is probably the same as before.
func (s *scanner) again(to *string, before string) error {
	text, err := s.str()
	if *to = before; string(text) != before {
		*to = string(text)
	}
	return err
}

// names reads strings that are probably the same as before.
func (s *scanner) names(to *[]string, before []string) error {
	*to = make([]string, 0, len(before))
	return s.array(func() error {
		var name, old string
		if i := len(*to); i < len(before) {
			old = before[i]
		}
		err := s.again(&name, old)
		*to = append(*to, name)
		return err
	})
}

// count reads a number of things.
func (s *scanner) count(to *int) error {
	n, err := s.int64()
	if err == nil && (n < 0 || n > math.MaxInt32) {
		err = s.fail(ErrValue, "count is %d, want 0 or more", n)
	}
	*to = int(n)
	return err
}

// total reads how many things there were since the beginning.
func (s *scanner) total(to *uint64) error {
	n, err := s.int64()
	if err == nil && n < 0 {
		err = s.fail(ErrValue, "count is %d, want 0 or more", n)
	}
	*to = uint64(n) //nolint:gosec // it is not negative
	return err
}

// States of a worker.
const (
	WorkerReady    = "ready"
	WorkerBroken   = "broken"
	WorkerSick     = "sick"
	WorkerDraining = "draining"
)

// Further states of a profile on a worker.
const (
	// WorkerWaiting: a dependency that every sample of the profile needs is down there.
	WorkerWaiting = "waiting"
	// WorkerTrying: likewise, and one sample may find out whether it is back.
	WorkerTrying = "trying"
	// WorkerMissing: the worker's machine lacks something that the profile needs.
	WorkerMissing = "missing"
)
