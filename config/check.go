package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/rewardloop/rewardloop/rewards"
)

// Check finds faults of a Config that Load cannot find: in the options of scorers and, if scores is
// true because this process scores samples, in the users' functions. The files of the functions are
// imported for this, each in a separate process and for at most 10 s; a file that takes longer
// becomes a note of the Config. loaded is the error of Load. Check returns all faults, including
// those of loaded, in one FaultsError, in the order of the file, and closes everything that it has
// built.
func Check(ctx context.Context, c *Config, loaded error, reg *rewards.Registry, scores bool) error {
	var faults FaultsError
	if loaded != nil && (c == nil || !errors.As(loaded, &faults)) {
		return loaded
	}
	faults = slices.Clone(faults)
	if len(faults) == 0 {
		managers, err := BuildManagers(c, reg)
		for _, m := range managers {
			err = errors.Join(err, m.Close())
		}
		if err != nil && !errors.As(err, &faults) {
			return err
		}
	} else {
		faults = append(faults, optionFaults(c, faults, reg)...)
	}
	if scores {
		faults = append(faults, inspectAll(ctx, c, faults, reg)...)
		sortNotes(c.notes)
	}
	for i := range faults { // what a file says while it is imported
		faults[i].Message = c.Secrets.Text(faults[i].Message)
	}
	return faults.sorted()
}

// optionFaults says what is wrong with options of a Config that has faults already. What
// else may be wrong with a component may be so because of those.
func optionFaults(c *Config, known FaultsError, reg *rewards.Registry) (faults FaultsError) {
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		p := c.Profiles[name]
		for _, t := range p.Components {
			if t.Scorer == "" || t.Scorer == PythonScorer || t.PostProcess != "" || known.at(t.pathKey(p)) {
				continue
			}
			spec, _ := reg.Spec(t.Scorer)
			t.concurrent(takesOption(spec, "concurrency"))
			scorer, group, wrong := buildOrFaults(c, p, t, reg, nil)
			for _, f := range wrong {
				if strings.HasPrefix(f.Key, t.optionsKey+".") {
					faults = append(faults, f)
				}
			}
			for _, made := range []any{scorer, group} {
				if closer, ok := made.(rewards.Closer); ok {
					_ = closer.Close() // nothing was done with it
				}
			}
		}
	}
	return faults
}

// at reports whether one of the faults is that of a key.
func (fs FaultsError) at(key string) bool {
	return slices.ContainsFunc(fs, func(f Fault) bool { return f.Key == key })
}

// pathKey is the key of a component's path.
func (t *ComponentConfig) pathKey(p *Profile) string { return p.key(*t) + ".path" }

// Unchecked is the beginning of the note about a file whose import takes too long for Check.
const Unchecked = "the names of its options are not checked"

// inspectAll looks at the functions of all profiles that this process serves.
func inspectAll(ctx context.Context, c *Config, known FaultsError, reg *rewards.Registry) (faults FaultsError) {
	own := *c // a function that asks the reward router is given one when it runs
	own.RouterAddress = cmp.Or(c.RouterAddress, "127.0.0.1:0")
	var mu sync.Mutex
	var looks sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, name := range slices.Sorted(maps.Keys(c.Profiles)) {
		if only := c.Queue.Rewards; len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		p := c.Profiles[name]
		for _, t := range p.Components {
			spec, _ := reg.Spec(t.Scorer)
			if spec.Inspect == nil || t.PostProcess != "" {
				continue
			}
			if t.environmentLacks != "" { // another Python would miss what the file imports
				mu.Lock()
				faults = append(faults, t.environmentFault(p))
				mu.Unlock()
				continue
			}
			looks.Go(func() { // ends with the inspection, which is bounded
				turns <- struct{}{}
				wrong, note := inspect(ctx, &own, p, t, spec, known.at(t.pathKey(p)))
				<-turns
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, wrong...)
				if note != nil {
					c.notes = append(c.notes, *note)
				}
			})
		}
	}
	looks.Wait()
	return faults
}

// inspect looks at the function of one component. Absent says that its file is not there.
func inspect(ctx context.Context, c *Config, p *Profile, t ComponentConfig, spec rewards.Spec, absent bool) (faults FaultsError, note *Note) {
	if absent {
		return argumentFaults(t, nil), nil
	}
	called := t
	called.Options = withDefaults(t.Options, pythonKeywords(c, p, t))
	groups := slices.ContainsFunc(p.Components, func(o ComponentConfig) bool { return o.PostProcess == t.Key })
	sig, err := spec.Inspect(ctx, called.scorerOptions(), groups)
	switch {
	case errors.Is(err, rewards.Timeout):
		return argumentFaults(t, nil), &Note{t.Place, t.pathKey(p), Unchecked + ": " + err.Error()}
	case err != nil:
		return append(argumentFaults(t, nil), Fault{Place: t.pathPlace(), Key: t.pathKey(p), Message: err.Error()}), nil
	}
	for _, f := range sig.Faults {
		if sig.At != "" {
			f += " (" + sig.At + ")"
		}
		faults = append(faults, Fault{Place: t.pathPlace(), Key: t.pathKey(p), Message: f})
	}
	return append(faults, argumentFaults(t, &sig)...), nil
}

// pathPlace is where a component's path is written.
func (t *ComponentConfig) pathPlace() Place {
	if t.pathAt != (Place{}) {
		return t.pathAt
	}
	return t.Place
}

// argumentFaults holds the options of a component against what its function takes; nil: that
// is not known.
func argumentFaults(t ComponentConfig, sig *rewards.Signature) (faults FaultsError) {
	for _, name := range slices.Sorted(maps.Keys(t.optionsAt)) {
		if why := argumentFault(name, t, sig); why != "" {
			faults = append(faults, Fault{Place: t.optionsAt[name], Key: t.optionsKey + "." + name, Message: why})
		}
	}
	return faults
}

func argumentFault(name string, t ComponentConfig, sig *rewards.Signature) string {
	known := t.besideOptions()
	switch {
	case sig == nil:
		if near := misspelt(name, known); near != "" {
			return fmt.Sprintf("is not a key of rewardloop, and the parameters of the function are not known; did you mean %s?", near)
		}
		return ""
	case slices.Contains(sig.Names, name):
		return ""
	}
	function := t.Function
	if sig.At != "" {
		function += " (" + sig.At + ")"
	}
	if !sig.Any {
		return "is not a parameter of " + function + nearest(name, append(known, sig.Names...))
	}
	near := misspelt(name, known)
	if near == "" {
		near = misspelt(name, slices.DeleteFunc(slices.Clone(sig.Names), func(k string) bool { return numbered(name, k) }))
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s? If %s takes an argument of this name through **kwargs, add it to the function's parameters", near, function)
}

// numbered reports whether two words differ in their last letter only, or one begins with the
// other: such names stand side by side.
func numbered(a, b string) bool {
	if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
		return true
	}
	return len(a) == len(b) && a[:len(a)-1] == b[:len(b)-1]
}
