package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/cards"
	"github.com/rewardloop/rewardloop/rewards"
)

// The kinds of what runs in this process's pool.
const (
	onnxModel    = "onnx model"
	engineServer = "engine"
	pythonModel  = "python model"
)

// want is a model that is to run here, and where its device is written.
type want struct {
	cards.Want
	id    string // equal of those that are the same model; "": What
	place Place
	key   string
}

// wants are the models that a process runs itself: those of components whose scorer has a
// device, and engines that are a model. One that several name is there once: they share it.
func (c *Config) wants(reg *rewards.Registry) (out []want) {
	add := func(w want) {
		w.id = cmp.Or(w.id, w.What)
		same := slices.IndexFunc(out, func(o want) bool { return w.id != "" && o.id == w.id && o.Device == w.Device })
		if same < 0 {
			out = append(out, w)
			return
		}
		out[same].Owner += ", " + w.Owner
		out[same].Fraction = max(out[same].Fraction, w.Fraction)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		for _, t := range p.Components {
			spec, _ := reg.Spec(t.Scorer)
			for _, w := range p.pythonWants(t) {
				add(w)
			}
			if t.PostProcess == "" && takesOption(spec, "device") {
				if w, ok := p.want(t, spec); ok {
					add(w)
				}
			}
		}
	}
	for _, name := range c.EngineNames() {
		e := c.Engines[name]
		if e.ONNX == "" {
			for i := range e.cards() / e.Parallel.Cards() {
				out = append(out, e.set(i))
			}
			continue
		}
		w := want{Want: cards.Want{Owner: "engine " + name, Kind: onnxModel, What: e.ONNX, Device: e.Device, Fraction: e.Fraction}, place: e.deviceAt, key: engineKey(name) + ".device"}
		if w.place == (Place{}) {
			w.place = e.Place
		}
		add(w)
	}
	return out
}

// want is the model of a component; ok is false where the options name none, or are wrong,
// which is told elsewhere.
func (p *Profile) want(t ComponentConfig, spec rewards.Spec) (w want, ok bool) {
	var o struct{ Reader, Model, Device string }
	if t.Options != nil && json.Unmarshal(t.Options, &o) != nil || o.Reader == "tesseract" {
		return w, false
	}
	for _, known := range spec.Options {
		switch {
		case known.Name == "device" && o.Device == "":
			o.Device = known.Default
		case known.Name == "model" && o.Model == "" && o.Reader == "":
			o.Model = known.Default
		}
	}
	if t.Scorer == onnxScorer {
		o.Model = strings.TrimPrefix(t.Path, onnxScheme)
	}
	w = want{
		Want:  cards.Want{Owner: p.key(t), Kind: onnxModel, What: o.Model, Device: o.Device, Fraction: t.Fraction},
		place: t.Place, key: p.key(t),
	}
	if at, written := t.optionsAt["device"]; written {
		w.place, w.key = at, t.optionsKey+".device"
	}
	return w, infer.ValidDevice(o.Device)
}

// pythonWants are what a component's model in Python wants, one for each of its devices. Entries
// share a model where all their options are equal.
func (p *Profile) pythonWants(t ComponentConfig) (out []want) {
	if t.Placement == nil {
		return nil
	}
	for _, device := range t.Placement.Devices {
		out = append(out, want{
			Want: cards.Want{Owner: p.key(t), Kind: pythonModel, What: filepath.Base(t.Path) + ":" + t.Function, Device: device, Fraction: t.Fraction},
			id:   string(t.scorerOptions()), place: t.Place, key: p.key(t),
		})
	}
	return out
}

// AsksForCards reports whether a model or an engine of this configuration runs on a card.
func (c *Config) AsksForCards(reg *rewards.Registry) bool {
	return slices.ContainsFunc(c.wants(reg), func(w want) bool { return w.onCards() })
}

// PlanCards assigns the cards in there to models. The error is a FaultsError with a fault, marked
// as Lacking, for every model that does not fit. The returned plan contains the other models.
func (c *Config) PlanCards(reg *rewards.Registry, there []cards.Card) (cards.Plan, error) {
	wants := c.wants(reg)
	bare := make([]cards.Want, len(wants))
	for i, w := range wants {
		bare[i] = w.Want
	}
	plan, err := cards.Make(there, c.modelCards(), bare)
	unfit, _ := errors.AsType[cards.UnfitError](err)
	var faults FaultsError
	for _, u := range unfit {
		w := wants[u.Want]
		faults = append(faults, Fault{Place: w.place, Key: w.key, Message: u.Why, Lacking: true})
	}
	return plan, faults.sorted()
}

// UnknownCards returns the error for a configuration that uses cards on a machine whose cards
// cannot be listed. why is the reason.
func (c *Config) UnknownCards(reg *rewards.Registry, why error) error {
	var faults FaultsError
	for _, w := range c.wants(reg) {
		if w.onCards() {
			faults = append(faults, Fault{Place: w.place, Key: w.key, Message: why.Error(), Lacking: true})
		}
	}
	return faults.sorted()
}

// Foreseen is an engine of a reward_model that verl-omni would start on a pool of cards. This
// process does not start it.
type Foreseen struct {
	Engine string `json:"engine"`
	// Replicas is the number of servers on all machines together, Cards the number of cards of each
	// server, and Pool the number of cards in the pool.
	Replicas int `json:"replicas"`
	Cards    int `json:"cards"`
	Pool     int `json:"pool"`
}

// Foreseen returns the engines that verl-omni would start on their own pools.
func (c *Config) Foreseen() (out []Foreseen) {
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		if e, all := c.Engines[p.Engine], p.Cards.All(); e != nil && e.ONNX == "" && e.Managed == nil && all > 0 {
			out = append(out, Foreseen{e.Name, e.Parallel.Replicas(all), e.Parallel.Cards(), all})
		}
	}
	return out
}

// onCards reports whether a want is one of cards.
func (w want) onCards() bool { return w.Count > 0 || w.Device != infer.CPU }

// SetOwner returns the name of an engine's server in the plan of cards.
func SetOwner(engine string, server int) string {
	return fmt.Sprintf("engine %s, server %d", engine, server)
}

// set are the cards of a server.
func (e *Engine) set(i int) want {
	w := want{Want: cards.Want{Owner: SetOwner(e.Name, i), Kind: engineServer, What: e.Model, Count: e.Parallel.Cards()}, place: e.Managed.deviceAt, key: engineKey(e.Name)}
	if w.place == (Place{}) {
		w.place = e.Place
	}
	return w
}

// modelCards is how many cards of the pool models have that run in this process's own pool: what
// the engines leave of it; 0: every card that they leave.
func (c *Config) modelCards() int {
	n := c.PoolCards()
	for _, e := range c.Engines {
		n -= e.cards()
	}
	return max(n, 0)
}
