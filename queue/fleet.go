package queue

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rewardloop/rewardloop/internal/outbound"
)

const (
	fleetBucket = "RL_FLEET"
	// fleetKey begins the key of a process; its name follows, encoded.
	fleetKey = "p."
	// fleetValue bounds what a process says: 1,000 groups with an endpoint out of service
	// in each. fleetBytes bounds what all say, which is 400 B each as a rule.
	fleetValue = 256 << 10
	fleetBytes = 16 << 20
	// fleetTTL is how long a word stays for those who come later.
	fleetTTL = 10 * time.Second
	// fleetMost bounds the processes that are remembered.
	fleetMost = 4096
	// fleetGap is the least time between two words of a process; a breaker's news make it
	// shorter than outbound.FleetPeriod.
	fleetGap = 100 * time.Millisecond
	// fleetLost is after how long without a word of its own a watch begins anew. A watch
	// repairs itself, but only after missing heartbeats for 10 s.
	fleetLost = 4 * outbound.FleetPeriod
	// fleetOpen bounds opening the bucket, fleetBye saying goodbye.
	fleetOpen = 5 * time.Second
	fleetBye  = time.Second
)

// fleetConfig says who takes part.
type fleetConfig struct {
	// Name is the process's, for those who look into the bucket.
	Name string
	// Create has the process make the bucket where it is missing, and change it where it
	// is another one. Without it, the process waits for one that does.
	Create bool
	// Replicas of the bucket, 1 to 5.
	Replicas int
	// Log takes what goes wrong in the background.
	Log *slog.Logger
}

// Fleet shares the state of upstream servers between processes, so that limits and breakers apply
// to all processes together. Each process has one key in a bucket, which it writes every second,
// and watches all keys. A process also receives its own messages through the watch, which proves
// that both directions work.
//
// The methods may be called from any goroutine.
type Fleet struct {
	cfg  fleetConfig
	js   jetstream.JetStream
	self string
	urge chan struct{}
	quit context.CancelFunc
	done chan struct{} // closed when run has ended
	met  chan struct{} // closed when the first watch has told what was there

	// Only run's.
	kv    jetstream.KeyValue
	watch jetstream.KeyWatcher
	end   context.CancelFunc // of the watch
	echo  time.Time          // when a word of its own came back, or the watch began
	lost  bool               // it has been said

	mu      sync.Mutex
	members map[string]outbound.Member // by group; called under mu
	known   map[string]saying          // by process
	said    bool                       // the last word named a group
}

// saying is what a process said last.
type saying struct {
	at     time.Time
	groups map[string]outbound.Report
}

// speech is what a process writes: JSON, at most fleetValue bytes.
type speech struct {
	Groups map[string]outbound.Report `json:"groups"`
}

var _ outbound.Fleet = (*Fleet)(nil)

var errUnheard = fmt.Errorf("this process did not receive its own message within %v", fleetLost)

// newFleet joins the fleet. ctx bounds the joining only. A process that creates the
// bucket fails if it cannot; another goes on without the fleet until there is a bucket.
func newFleet(ctx context.Context, js jetstream.JetStream, cfg fleetConfig) (*Fleet, error) {
	// Two processes may have the same name, and one its former life's.
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	f := &Fleet{
		cfg: cfg, js: js, self: cfg.Name + "." + hex.EncodeToString(random[:]),
		urge: make(chan struct{}, 1), done: make(chan struct{}), met: make(chan struct{}),
		members: map[string]outbound.Member{}, known: map[string]saying{},
	}
	opened := f.open(ctx)
	if opened != nil && cfg.Create {
		return nil, fmt.Errorf("queue: the fleet's bucket %s: %w", fleetBucket, opened)
	}
	f.miss(ctx, opened)
	life, quit := context.WithCancel(context.WithoutCancel(ctx))
	f.quit = quit
	go f.run(life) // ends with Close, which waits for it
	if opened == nil {
		select {
		case <-f.met:
		case <-ctx.Done():
		case <-time.After(fleetBye): // the rest comes later
		}
	}
	return f, nil
}

// Close announces the end of this process and ends the watch. Close may be called twice. The
// upstreams that joined must leave before; otherwise they keep their last shares.
func (f *Fleet) Close() {
	f.quit()
	<-f.done
}

// Self implements outbound.Fleet.
func (f *Fleet) Self() string { return f.self }

// Urge implements outbound.Fleet.
func (f *Fleet) Urge() {
	select {
	case f.urge <- struct{}{}:
	default:
	}
}

// Join implements outbound.Fleet. If an upstream with the same name and limits has joined already,
// that upstream keeps its membership, and m does not join.
func (f *Fleet) Join(group string, m outbound.Member) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[group] != nil {
		f.cfg.Log.Warn("two upstreams with the same name and limits exist in this process; each gets a share of the fleet's limits", "group", group)
		return func() {}
	}
	f.members[group] = m
	for from, h := range f.known {
		if r, ok := h.groups[group]; ok && from != f.self && time.Since(h.at) < fleetTTL {
			m.Heard(from, &r)
		}
	}
	return func() {
		f.mu.Lock()
		delete(f.members, group)
		f.mu.Unlock()
		f.Urge()
	}
}

// run owns the watch.
func (f *Fleet) run(ctx context.Context) {
	defer close(f.done)
	defer f.bye(ctx)
	for {
		f.attend(ctx)
		f.shut()
		if ctx.Err() != nil {
			return
		}
		f.miss(ctx, f.open(ctx))
	}
}

// attend listens and speaks until the watch ends or nothing more comes of it. Without
// a watch it speaks, and ends after a period: then the bucket is looked for again.
func (f *Fleet) attend(ctx context.Context) {
	tick := time.NewTicker(outbound.FleetPeriod)
	defer tick.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	var updates <-chan jetstream.KeyValueEntry
	if f.watch != nil {
		updates = f.watch.Updates()
	}
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-updates:
			if !ok {
				return
			}
			f.hear(ctx, e)
			continue
		case <-f.urge:
			soon.Reset(max(0, fleetGap-time.Since(last)))
			continue
		case <-soon.C:
		case <-tick.C:
			if updates == nil {
				return
			}
		}
		last = time.Now()
		if spoke := f.speak(ctx); !spoke {
			f.echo = last
		} else if updates != nil && last.Sub(f.echo) > fleetLost {
			f.miss(ctx, errUnheard)
			return
		}
	}
}

// open finds or makes the bucket and begins to watch it.
func (f *Fleet) open(ctx context.Context) error {
	// The watch lives as long as its context, which only its beginning may exhaust.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	late := time.AfterFunc(fleetOpen, end)
	defer late.Stop()
	defer context.AfterFunc(ctx, end)()
	kv, err := f.bucket(life)
	if err != nil {
		end()
		return err
	}
	watch, err := kv.WatchAll(life)
	if err != nil {
		end()
		return err
	}
	f.kv, f.watch, f.end, f.echo = kv, watch, end, time.Now()
	return nil
}

func (f *Fleet) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if !f.cfg.Create {
		return f.js.KeyValue(ctx, fleetBucket)
	}
	return f.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: fleetBucket, Description: "what rewardloop's processes want of the servers they share", Storage: jetstream.MemoryStorage,
		History: 1, TTL: fleetTTL, MaxValueSize: fleetValue, MaxBytes: fleetBytes, Replicas: f.cfg.Replicas,
	})
}

// miss logs that the fleet is out of reach, once.
func (f *Fleet) miss(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !f.lost {
		f.lost = true
		f.cfg.Log.WarnContext(ctx, "NATS cannot be reached; shares of the fleet's limits stay as they were", "bucket", fleetBucket, "error", err)
	}
}

// reach notes that a word of this process came back.
func (f *Fleet) reach(ctx context.Context) {
	f.echo = time.Now()
	if f.lost {
		f.lost = false
		f.cfg.Log.InfoContext(ctx, "NATS can be reached again; shares of the fleet's limits are up to date", "bucket", fleetBucket)
	}
}

// shut ends the watch.
func (f *Fleet) shut() {
	if f.watch == nil {
		return
	}
	_ = f.watch.Stop() // of a connection that is gone; the watch is gone with it
	late := time.NewTimer(fleetBye)
	defer late.Stop()
	for open := true; open; { // What is under way would block the watch's own goroutine.
		select {
		case _, open = <-f.watch.Updates():
		case <-late.C:
			open = false
		}
	}
	f.end()
	f.watch, f.end = nil, nil
}

// bye has the others know at once that the process has gone.
func (f *Fleet) bye(ctx context.Context) {
	f.mu.Lock()
	f.members = map[string]outbound.Member{}
	f.mu.Unlock()
	if f.kv == nil || !f.js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fleetBye)
	defer cancel()
	if err := f.kv.Delete(ctx, f.key()); err != nil {
		f.cfg.Log.DebugContext(ctx, "the leave message to the other processes was not sent; they remove this process after a timeout", "error", err)
	}
}

func (f *Fleet) key() string {
	return fleetKey + base64.RawURLEncoding.EncodeToString([]byte(f.self))
}

// speak writes what the groups of this process have to say. It waits for no answer: that
// is what comes back through the watch. false: there is nothing to say.
func (f *Fleet) speak(ctx context.Context) bool {
	f.mu.Lock()
	s := speech{Groups: make(map[string]outbound.Report, len(f.members))}
	for group, m := range f.members {
		s.Groups[group] = m.Report()
	}
	said := f.said
	f.said = len(s.Groups) > 0
	f.mu.Unlock()
	if len(s.Groups) == 0 && !said {
		return false
	}
	data, err := json.Marshal(s)
	if err == nil && len(data) > fleetValue {
		err = fmt.Errorf("%d groups need %d bytes, more than %d", len(s.Groups), len(data), fleetValue)
	}
	if err == nil {
		err = f.js.Conn().Publish("$KV."+fleetBucket+"."+f.key(), data)
	}
	f.miss(ctx, err)
	return true
}

// hear hands on what a process wrote. nil: all that was there has been heard.
func (f *Fleet) hear(ctx context.Context, e jetstream.KeyValueEntry) {
	if e == nil {
		select {
		case <-f.met:
		default:
			close(f.met)
		}
		return
	}
	name, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(e.Key(), fleetKey))
	from := string(name)
	if err != nil || from == "" || !strings.HasPrefix(e.Key(), fleetKey) {
		return // another release's
	}
	var s speech
	if e.Operation() == jetstream.KeyValuePut && json.Unmarshal(e.Value(), &s) != nil {
		return
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if from == f.self {
		f.reach(ctx)
	}
	before := f.known[from].groups
	switch {
	case e.Operation() != jetstream.KeyValuePut:
		delete(f.known, from)
	case before == nil && len(f.known) >= fleetMost && !f.forget(now):
		return
	default:
		f.known[from] = saying{now, s.Groups}
	}
	for group, m := range f.members {
		if r, ok := s.Groups[group]; ok {
			m.Heard(from, &r)
		} else if _, was := before[group]; was {
			m.Heard(from, nil)
		}
	}
}

// forget makes room among those that are remembered. The caller holds mu.
func (f *Fleet) forget(now time.Time) (some bool) {
	for name, h := range f.known {
		if now.Sub(h.at) > fleetTTL {
			delete(f.known, name)
			some = true
		}
	}
	return some
}
