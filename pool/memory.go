package pool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// memoryFactor is what a model is taken to need of its device's memory, as a multiple of its
// files: the weights, and as much again for what its runs hold.
const memoryFactor = 2

// Estimate returns how many bytes of memory a model is assumed to need on a device before its first
// load: twice the size of its files. Files with external data count if they are in the same folder
// and their names begin with the name of the model's file, such as decoder.onnx_data. The result is
// 0 if there is no such file, or if the model is in Python, where the size of the file has no
// meaning.
func Estimate(m infer.Model) int64 {
	if m.Entry != "" {
		return 0
	}
	var sum int64
	for _, path := range []string{m.Path, m.Embed} {
		if path == "" {
			continue
		}
		beside, _ := os.ReadDir(filepath.Dir(path)) // a file that cannot be read fails to load, with the reason
		for _, f := range beside {
			if !strings.HasPrefix(f.Name(), filepath.Base(path)) {
				continue
			}
			if fi, err := os.Stat(filepath.Join(filepath.Dir(path), f.Name())); err == nil && fi.Mode().IsRegular() {
				sum += fi.Size()
			}
		}
	}
	return memoryFactor * sum
}

// stayMin is how long a model stays on its device at least once it is loaded, where its load
// took less. A device on which models alternate that have no room together spends at most half
// of its time on loading them.
const stayMin = time.Second

// residence is whether a model is in a device's memory. Guarded by the memory's mutex, but for on
// and forget, which do not change.
type residence struct {
	on    *device
	place place
	bytes int64 // that it takes there, or did, or is to
	said  bool  // the runner has said how many bytes, else they are estimated
	asked bool  // somebody has asked for it
	// users are calls that need it, from the moment at which they ask for it until they are
	// answered, and runs.
	users     int
	used      time.Time // when it had its last user
	stays     time.Time // it is not evicted before
	evicted   bool      // since it was loaded last
	evictions uint64
	forget    func() // has the next call load it again
}

// place is where a model is.
type place uint8

const (
	absent   place = iota
	arriving       // it is being loaded
	starving       // its load lacked memory, and waits for others to go
	present
	leaving // it is being unloaded
)

// memory is the book of the models in the memory of a card, or of the CPU, which all devices there
// share. Who uses several of its methods for one decision holds mu meanwhile.
type memory struct {
	mu sync.Mutex // guards what follows

	budget  int64 // bytes; 0: not bounded
	here    []*account
	taken   int64         // by models that arrive or are present
	changed chan struct{} // closed when there may be room; nil: nobody waits
}

// claim books the room for a model that is to be loaded, and takes out of the book those that
// have to be unloaded before. Without room it returns false, and how long to wait before
// asking again; 0: until something changes. The caller holds mu, as for all methods up to change.
func (m *memory) claim(a *account, now time.Time) (evict []*account, wait time.Duration, ok bool) {
	if a.place == leaving {
		return nil, 0, false
	}
	lack := m.lack(a)
	if lack > 0 {
		idle, wait := m.idle(a, now)
		for _, v := range idle {
			if lack > 0 {
				evict = append(evict, v)
				lack -= v.bytes
			}
		}
		if lack > 0 {
			return nil, wait, false
		}
	}
	for _, v := range evict {
		m.expel(v)
	}
	a.place = arriving
	m.here = append(m.here, a)
	m.taken += a.bytes
	return evict, 0, true
}

// lack is how many bytes a model needs beyond what is free; 0 or less: none.
func (m *memory) lack(a *account) int64 {
	if m.budget == 0 {
		return 0
	}
	return m.taken + a.bytes - m.budget
}

// idle are the models beside a that nobody needs, the least recently used first, and how long
// it is until another one may be evicted; 0: there is none.
func (m *memory) idle(a *account, now time.Time) (idle []*account, wait time.Duration) {
	for _, v := range m.here {
		if v == a || v.place != present || v.users > 0 {
			continue
		}
		if left := v.stays.Sub(now); left <= 0 {
			idle = append(idle, v)
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	slices.SortStableFunc(idle, func(a, b *account) int { return a.used.Compare(b.used) })
	return idle, wait
}

// expel takes a model out of the book that is going to be unloaded.
func (m *memory) expel(a *account) {
	m.remove(a)
	a.place, a.evicted = leaving, true
	a.forget()
	a.evictions++
}

func (m *memory) remove(a *account) {
	m.here = slices.DeleteFunc(m.here, func(o *account) bool { return o == a })
	m.taken -= a.bytes
}

// unloaded notes that a model that was expelled is gone.
func (m *memory) unloaded(a *account) {
	a.place = absent
	m.change()
}

// loaded notes that a model is there, and that it takes so many bytes if those are known.
func (m *memory) loaded(a *account, bytes int64, took time.Duration, now time.Time) {
	if bytes > 0 {
		m.taken += bytes - a.bytes
		a.bytes, a.said = bytes, true
	}
	a.place, a.evicted = present, false
	a.used, a.stays = now, now.Add(max(took, stayMin))
	m.change()
}

// failed notes that a model could not be loaded.
func (m *memory) failed(a *account) {
	m.remove(a)
	m.unloaded(a)
}

// hold keeps a model from being evicted until release. Crowded says that it was evicted, and that
// there is no room for it.
func (m *memory) hold(a *account) (crowded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.asked = true
	a.users++
	return a.evicted && m.lack(a) > 0
}

func (m *memory) release(a *account, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.used = now
	if a.users--; a.users == 0 {
		m.change()
	}
}

// change wakes those that wait for room.
func (m *memory) change() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// next returns a channel that is closed when there may be room.
func (m *memory) next() <-chan struct{} {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

// isShared is shared for one who does not hold mu.
func (m *memory) isShared(a *account) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shared(a)
}

// shared reports whether other models are loaded on the device beside a, or are being loaded.
// The caller holds mu, as for full.
func (m *memory) shared(a *account) bool {
	return slices.ContainsFunc(m.here, func(o *account) bool { return o != a && o.place != starving })
}

// full is why there is no room for a model.
func (m *memory) full(a *account) error {
	list := make([]string, 0, len(m.here))
	for _, o := range m.here {
		why := "loaded a moment ago"
		switch {
		case o.place != present:
			why = "being loaded"
		case o.users > 0:
			why = fmt.Sprintf("used by %d", o.users)
		}
		list = append(list, fmt.Sprintf("%s %s, %s", o.model.Name, mib(o.bytes), why))
	}
	slices.Sort(list)
	return fmt.Errorf("%w: the model needs %s; the device has %s for models, of which %s are in use (%s)",
		infer.ErrMemory, mib(a.bytes), mib(m.budget), mib(m.taken), strings.Join(list, "; "))
}

func mib(bytes int64) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }
