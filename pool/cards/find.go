package cards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// VisibleEnv is the environment variable with the cards that a process sees, in their order.
const VisibleEnv = "CUDA_VISIBLE_DEVICES"

// Options configures Find. A zero field means its default.
type Options struct {
	// Program is the nvidia-smi program. The default is nvidia-smi on PATH. If Program is set, NVML
	// is not used.
	Program string
	// DriverDir is the folder with the driver's descriptions of the cards. The default is
	// /proc/driver/nvidia.
	DriverDir string
	// LookupEnv returns an environment variable. The default is os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// Timeout is the maximum duration of each call of the program. There are at most three calls,
	// which together take at most one and a half times Timeout. The default is 20 s. Without
	// persistence mode the driver may take two seconds for each card.
	Timeout time.Duration

	named bool // the program is
}

func (o Options) withDefaults() Options {
	o.named = o.Program != ""
	o.Program = cmp.Or(o.Program, "nvidia-smi")
	o.DriverDir = cmp.Or(o.DriverDir, "/proc/driver/nvidia")
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	o.Timeout = cmp.Or(o.Timeout, 20*time.Second)
	return o
}

// gpu is a card of the machine, with the instances that MIG makes of it.
type gpu struct {
	Card
	mig       bool
	instances []Card
}

// Find lists the cards that this process may use. A machine without a driver has no cards, which is
// not an error. An error means that the cards are unknown: nvidia-smi hangs, or its output cannot
// be understood.
func Find(ctx context.Context, o Options) (Found, error) {
	o = o.withDefaults()
	var f Found
	value, set := o.LookupEnv(VisibleEnv)
	if set {
		f.Visible = &value
	}
	if set && len(entries(value)) == 0 { // nothing is visible: a sick driver need not be asked
		f.Notes = append(f.Notes, fmt.Sprintf("%s=%q hides all cards from this process", VisibleEnv, value))
		return f, nil
	}
	all, err := f.list(ctx, o)
	switch {
	case err != nil:
		return f, err
	case set && len(all) == 0 && f.Source == "" && len(f.Notes) == 0:
		f.Cards = named(value)
		f.Source = VisibleEnv
		f.Notes = append(f.Notes, "neither "+o.Program+" nor "+o.DriverDir+" is there: nothing is known of the cards but that "+VisibleEnv+" names them")
	case set:
		cards, notes := visible(all, value)
		f.Cards, f.Notes = cards, append(f.Notes, notes...)
		if mixed(all) && byNumber(value) {
			if order, _ := o.LookupEnv("CUDA_DEVICE_ORDER"); order != "PCI_BUS_ID" {
				f.Notes = append(f.Notes, VisibleEnv+" holds numbers, and the cards are of different kinds: CUDA gives the first number to the fastest card, and here numbers are nvidia-smi's. "+
					"Write uuids, or set CUDA_DEVICE_ORDER=PCI_BUS_ID")
			}
		}
	case len(all) == 0 && len(f.Notes) == 0:
		f.Notes = append(f.Notes, o.Program+" is not on PATH, and no driver lists a GPU in "+o.DriverDir)
	default:
		for _, g := range all {
			f.Cards = append(f.Cards, g.devices()...)
		}
	}
	return f, nil
}

// count notes the uncorrected errors of a card's memory.
func (g *gpu) count(errs int64) {
	if g.ECCErrors = errs; errs > 0 {
		g.Sick = fmt.Sprintf("%d uncorrected memory errors since the driver was loaded: reset the card (nvidia-smi --gpu-reset) or restart the machine", errs)
	}
}

// library asks NVML, in a program that is built with the tag nvml; nil in all others.
//
//nolint:gochecknoglobals // set once, by the file with that tag
var library func(ctx context.Context, limit time.Duration) (all []gpu, notes []string, err error)

// list asks the first source that is there for all cards of the machine.
func (f *Found) list(ctx context.Context, o Options) ([]gpu, error) {
	sources := []struct {
		name string
		ask  func(ctx context.Context, limit time.Duration) ([]gpu, []string, error)
	}{{"NVML", library}, {"nvidia-smi", func(ctx context.Context, _ time.Duration) ([]gpu, []string, error) {
		return smi{o, time.Now().Add(o.Timeout * 3 / 2)}.cards(ctx)
	}}}
	for _, s := range sources {
		if s.ask == nil || s.name == "NVML" && o.named {
			continue
		}
		all, notes, err := s.ask(ctx, o.Timeout)
		f.Notes = append(f.Notes, notes...)
		switch {
		case err == nil:
			if len(all) > 0 {
				f.Source = s.name
			}
			return all, nil
		case !errors.Is(err, errNoProgram):
			return nil, err
		}
	}
	all := driverCards(o.DriverDir)
	if len(all) > 0 {
		f.Source = o.DriverDir
		f.Notes = append(f.Notes, o.Program+" is not on PATH: memory, health and processes of the cards are not known (in a container set NVIDIA_DRIVER_CAPABILITIES=compute,utility)")
	}
	return all, nil
}

// driverCards reads what the driver tells of its cards: /proc/driver/nvidia/gpus/*/information.
func driverCards(dir string) (out []gpu) {
	files, _ := filepath.Glob(filepath.Join(dir, "gpus", "*", "information")) // the pattern is right
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		c := Card{Index: -1, FreeBytes: -1, ECCErrors: -1}
		for line := range strings.Lines(string(text)) {
			key, v, _ := strings.Cut(line, ":")
			switch v = strings.TrimSpace(v); strings.TrimSpace(key) {
			case "Model":
				c.Name = v
			case "GPU UUID":
				if strings.HasPrefix(v, "GPU-") && !strings.Contains(v, "?") { // question marks where nobody has opened it yet
					c.UUID = v
				}
			}
		}
		out = append(out, gpu{Card: c})
	}
	for i := range out { // the folders are named by bus addresses, in whose order nvidia-smi counts
		out[i].Index = i
	}
	return out
}

// devices are what CUDA sees of a card: itself, or its instances.
func (g gpu) devices() []Card {
	switch {
	case !g.mig:
		return []Card{g.Card}
	case len(g.instances) == 0:
		c := g.Card
		c.Sick = cmp.Or(c.Sick, "MIG is on and no instance is made: make some with nvidia-smi mig -cgi … -C, or switch MIG off")
		return []Card{c}
	}
	out := slices.Clone(g.instances)
	for i := range out {
		out[i].Sick = cmp.Or(out[i].Sick, g.Sick)
	}
	return out
}

// entries are those of CUDA_VISIBLE_DEVICES up to where CUDA stops reading.
func entries(value string) (out []string) {
	for e := range strings.SplitSeq(value, ",") {
		if e = strings.TrimSpace(e); e == "" || strings.HasPrefix(e, "-") {
			break
		}
		out = append(out, e)
	}
	return out
}

// byNumber reports whether entries are numbers.
func byNumber(value string) bool {
	return slices.ContainsFunc(entries(value), func(e string) bool { _, err := strconv.Atoi(e); return err == nil })
}

// mixed reports whether cards are of different kinds.
func mixed(all []gpu) bool {
	return slices.ContainsFunc(all, func(g gpu) bool { return g.Name != all[0].Name })
}

// named are cards of which nothing is known but their entries.
func named(value string) (out []Card) {
	for _, e := range entries(value) {
		c := Card{Index: -1, FreeBytes: -1, ECCErrors: -1}
		if n, err := strconv.Atoi(e); err == nil {
			c.Index = n
		} else {
			c.UUID = e
		}
		out = append(out, c)
	}
	return out
}

// visible are the cards that CUDA_VISIBLE_DEVICES names, in its order. As CUDA does it ends
// at the first entry that names none. A number or uuid of a card that MIG divides stands for
// its instances: each child process sees one of them.
func visible(all []gpu, value string) (out []Card, notes []string) {
	seen := map[string]bool{}
	for i, e := range entries(value) {
		found, why := lookup(all, e)
		if why == "" && seen[found[0].key()] {
			why = "names a card a second time"
		}
		if why != "" {
			return out, []string{fmt.Sprintf("%s=%q: entry %d, %q, %s; CUDA reads no further, and sees %d of its cards", VisibleEnv, value, i+1, e, why, len(out))}
		}
		for _, c := range found {
			seen[c.key()] = true
		}
		out = append(out, found...)
	}
	return out, nil
}

// key tells cards apart.
func (c Card) key() string { return cmp.Or(c.UUID, strconv.Itoa(c.Index)) }

// lookup are the devices that an entry names, or why it names none.
func lookup(all []gpu, entry string) (found []Card, why string) {
	var matches [][]Card
	for _, g := range all {
		switch n, err := strconv.Atoi(entry); {
		case err == nil && n == g.Index, strings.HasPrefix(entry, "GPU-") && prefix(g.UUID, entry):
			matches = append(matches, g.devices())
		case strings.HasPrefix(entry, "MIG-"):
			for _, c := range g.devices() {
				if c.Parent != "" && prefix(c.UUID, entry) {
					matches = append(matches, []Card{c})
				}
			}
		}
	}
	switch len(matches) {
	case 0:
		return nil, "is not one of the machine's " + strconv.Itoa(len(all)) + " cards"
	case 1:
		return matches[0], ""
	}
	return nil, fmt.Sprintf("fits %d cards", len(matches))
}

func prefix(uuid, of string) bool {
	return uuid != "" && strings.HasPrefix(strings.ToLower(uuid), strings.ToLower(of))
}
