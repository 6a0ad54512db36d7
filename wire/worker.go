package wire

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// WorkerInfo is the announcement of a worker.
type WorkerInfo struct {
	// ID is unique among live workers.
	ID string `json:"id"`
	// Busy is the number of samples that the worker scores now, including those of scorers that
	// exceeded their time.
	Busy int `json:"busy"`
	// State is "ready", "broken" (the worker reaches no gateway), "sick" (too many scorers of every
	// profile exceeded their time) or "draining".
	State string `json:"state"`
	// Profiles are the profiles that the worker serves, each with the queue of its tickets. A
	// worker without profiles accepts every ticket.
	Profiles []ProfileInfo `json:"profiles,omitempty"`
	// Host is the worker's machine. Devices and Models are what the worker scores with, such as
	// cuda:0 and ppocr-v4-mobile.
	Host    string   `json:"host,omitempty"`
	Devices []string `json:"devices,omitempty"`
	Models  []string `json:"models,omitempty"`
	Version string   `json:"version,omitempty"`
	// Scored and Failed are numbers of samples since the start of the worker.
	Scored uint64 `json:"scored"`
	Failed uint64 `json:"failed"`
	// Started is when the worker started. A worker that is restarted under the same name is another
	// worker for the gateway's breakers.
	Started time.Time `json:"started,omitzero"`
	// Seen is when the gateway last received an announcement of the worker.
	Seen time.Time `json:"seen"`
	// Rev is set by the gateway, and changes whenever anything except a counter has changed (see
	// Resembles). 0: the announcements have not been compared.
	Rev uint64 `json:"-"`
}

// ProfileInfo is the state of one profile in the announcement of a worker.
type ProfileInfo struct {
	// Name is the name of the profile; empty: the default profile. Queue is the queue of its
	// tickets.
	Name  string `json:"name,omitempty"`
	Queue string `json:"queue"`
	// Capacity is the number of samples of the profile that the worker can have at the same time.
	// Narrow is the number that can begin at the same time, if a component has fewer executors than
	// another.
	Capacity int `json:"capacity"`
	Narrow   int `json:"narrow,omitempty"`
	// Used is the number of samples of the profile that the worker has, by gateway.
	Used map[string]int `json:"used,omitempty"`
	// State is why a ready worker accepts no sample of the profile, or at most one: WorkerSick,
	// WorkerWaiting, WorkerTrying or WorkerMissing. Waits is then what the worker waits for, such
	// as a dependency. State is empty while the worker accepts samples; Waits may then still
	// contain a dependency that does not answer.
	State string `json:"state,omitempty"`
	Waits string `json:"waits,omitempty"`
}

// Resembles reports whether two announcements of a worker differ only in counters and times: Busy,
// Scored, Failed, Used of each profile, and Seen.
func (w *WorkerInfo) Resembles(o *WorkerInfo) bool {
	return w.ID == o.ID && w.State == o.State && w.Host == o.Host && w.Version == o.Version && w.Started.Equal(o.Started) &&
		slices.Equal(w.Devices, o.Devices) && slices.Equal(w.Models, o.Models) &&
		slices.EqualFunc(w.Profiles, o.Profiles, func(p, q ProfileInfo) bool {
			return p.Name == q.Name && p.Queue == q.Queue && p.Capacity == q.Capacity && p.Narrow == q.Narrow && p.State == q.State && p.Waits == q.Waits
		})
}

// longestWord bounds what a worker tells of itself in bytes. A profile is some 60 of them.
const longestWord = 1 << 20

// DecodeWorkerInfo reads the JSON of a worker's announcement. before is the worker's previous
// announcement, whose strings are reused; before may be nil. Unknown names, which may come from
// another release, are ignored.
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
	// WorkerWaiting means that a dependency that every sample of the profile needs is down for this
	// worker.
	WorkerWaiting = "waiting"
	// WorkerTrying means the same as WorkerWaiting, and that one sample may test whether the
	// dependency is back.
	WorkerTrying = "trying"
	// WorkerMissing means that the worker's machine lacks something that the profile needs.
	WorkerMissing = "missing"
)
