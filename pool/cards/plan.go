package cards

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Want is a request for a device.
type Want struct {
	// Owner identifies the owner of the request for people: reward default, component pick.
	Owner string `json:"owner"`
	// Kind is the kind of the user of the device, such as onnx model, and What its name. They do
	// not affect the plan.
	Kind string `json:"kind"`
	What string `json:"what,omitempty"`
	// Device is cpu, cuda:<n>, or cuda for every card of the pool. It is empty if Count is set.
	Device string `json:"device,omitempty"`
	// Count requests this number of whole cards as one set, with adjacent numbers if possible.
	Count int `json:"count,omitempty"`
	// Bytes is the required memory on each card. 0 means unknown.
	Bytes int64 `json:"bytes,omitempty"`
	// Fraction is the share of each card, 0 < f <= 1. 1 is the whole card; 0 means the memory that
	// other owners leave.
	Fraction float64 `json:"fraction,omitempty"`
}

// whole reports whether nobody else may be on its cards.
func (w Want) whole() bool { return w.Count > 0 || w.Fraction == 1 }

// Share is an owner's share of a card.
type Share struct {
	Want  `json:"want"`
	Whole bool `json:"whole"`
	// Planned is the memory reserved for the owner. 0 means unknown.
	Planned int64 `json:"planned_bytes"`
}

// Use describes the owners of a card.
type Use struct {
	Device string  `json:"device"`
	Card   Card    `json:"card"`
	Shares []Share `json:"shares,omitempty"`
	// Planned is the reserved memory, and Left the memory that is not reserved. A Left of -1 means
	// unknown.
	Planned int64 `json:"planned_bytes"`
	Left    int64 `json:"left_bytes"`
}

// librariesBytes is what CUDA, cuDNN and cuBLAS take of a card beside the models of a process:
// 300 to 600 MB.
const librariesBytes = 600 << 20

// Budget returns how many bytes of the card all models together may use; 0 means unknown. It is the
// memory of the card, or the sum of the fractions if every owner has one, minus the memory that the
// libraries need. The memory that is free now does not matter, because a process that is being
// replaced holds its memory a moment longer.
func (u Use) Budget() int64 {
	budget := u.Card.MemoryBytes
	if budget == 0 {
		return 0
	}
	var sum float64
	for _, s := range u.Shares {
		if s.Fraction == 0 && !s.Whole {
			sum = 1
			break
		}
		sum += cmp.Or(s.Fraction, 1)
	}
	if sum > 0 && sum < 1 {
		budget = int64(sum * float64(budget))
	}
	return max(budget-librariesBytes, 1)
}

// Held is a want and its devices.
type Held struct {
	Want
	// Devices are the cards of the owner in order, or cpu.
	Devices []string `json:"devices"`
}

// Plan assigns cards to owners. It contains the wants that fit.
type Plan struct {
	// Cards contains all cards, in order.
	Cards []Use `json:"cards"`
	// Pool contains the devices of the reward pool. It is nil if no want uses the pool.
	Pool []string `json:"pool,omitempty"`
	// Owners contains the wants that fit, in order.
	Owners []Held `json:"owners"`
	// Notes are warnings about wants that fit, for example that other processes use the memory now.
	Notes []string `json:"notes,omitempty"`
}

// Unfit is a want that does not fit.
type Unfit struct {
	// Want is the index of the want.
	Want int
	// Owner is the owner of the want.
	Owner string
	// Why is the reason why the want does not fit, with numbers, and a remedy.
	Why string
}

// UnfitError lists every want that does not fit, in order.
type UnfitError []Unfit

// Error returns one line for each want.
func (e UnfitError) Error() string {
	lines := make([]string, len(e))
	for i, u := range e {
		lines[i] = u.Owner + ": " + u.Why
	}
	return strings.Join(lines, "\n")
}

// planner is a plan in the making.
type planner struct {
	Plan
	wants   []Want
	devices [][]string // of each want; nil: it has none
	unfit   UnfitError
}

// Make assigns cards, which are in CUDA's order, to wants. poolSize is the number of cards in the
// reward pool; 0 means every card that is not part of a set. Wants for one card by its name are
// placed first; then sets, the largest first and each beginning with the last cards; then the wants
// for the pool, which consists of the first remaining cards. The error is an UnfitError; the
// returned Plan contains the wants that fit.
func Make(cards []Card, poolSize int, wants []Want) (Plan, error) {
	p := &planner{wants: wants, devices: make([][]string, len(wants))}
	for i, c := range cards {
		p.Cards = append(p.Cards, Use{Device: Device(i), Card: c})
	}
	var sets, pooled []int
	for i, w := range wants {
		switch {
		case w.Fraction < 0 || w.Fraction > 1:
			p.refuse(i, "fraction is %v, want more than 0 and at most 1", w.Fraction)
		case w.Count > 0:
			sets = append(sets, i)
		case w.Device == infer.CPU:
			p.devices[i] = []string{infer.CPU}
		case w.Device == infer.Pool:
			pooled = append(pooled, i)
		default:
			p.place(i, p.named(w.Device))
		}
	}
	slices.SortStableFunc(sets, func(a, b int) int { return cmp.Compare(wants[b].Count, wants[a].Count) })
	for _, i := range sets {
		p.place(i, p.set(wants[i].Count))
	}
	p.pool(poolSize, pooled)
	return p.done()
}

// choice is the cards that a want is to have, or why it can have none.
type choice struct {
	cards []int
	why   string
}

// named is one card by its name.
func (p *planner) named(device string) choice {
	n, err := strconv.Atoi(strings.TrimPrefix(device, "cuda:"))
	switch {
	case err != nil || n < 0 || Device(n) != device:
		return choice{why: fmt.Sprintf("unknown device %q, want %s", device, infer.DeviceForm)}
	case n >= len(p.Cards):
		return choice{why: fmt.Sprintf("no device %s: this process sees %s", device, p.seen())}
	case p.Cards[n].Card.Sick != "":
		return choice{why: fmt.Sprintf("%s (%s) is not used: %s", device, p.Cards[n].Card.Visible(), p.Cards[n].Card.Sick)}
	}
	return choice{cards: []int{n}}
}

// seen says what cards there are, "2 cards, cuda:0 to cuda:1".
func (p *planner) seen() string {
	switch n := len(p.Cards); n {
	case 0:
		return "no card; write device: cpu, or use a machine with a card"
	case 1:
		return "1 card, cuda:0"
	default:
		return fmt.Sprintf("%d cards, cuda:0 to %s", n, Device(n-1))
	}
}

// free are the healthy cards that nobody has, or that nobody has as a whole.
func (p *planner) free(unused bool) (out []int) {
	for i, u := range p.Cards {
		taken := slices.ContainsFunc(u.Shares, func(s Share) bool { return s.Whole || unused })
		if u.Card.Sick == "" && !taken {
			out = append(out, i)
		}
	}
	return out
}

// set chooses whole cards from the last on, side by side if there are so many.
func (p *planner) set(count int) choice {
	free := p.free(true)
	if len(free) < count {
		return choice{why: fmt.Sprintf("the engine needs %s as one set, but %s: lower tensor_model_parallel_size, or give this process more cards with %s",
			number(count), p.left(len(free)), VisibleEnv)}
	}
	for end := len(free); end >= count; end-- {
		if run := free[end-count : end]; run[count-1]-run[0] == count-1 {
			return choice{cards: run}
		}
	}
	run := free[len(free)-count:]
	p.Notes = append(p.Notes, fmt.Sprintf("a set of %d cards is not side by side: %s", count, strings.Join(devicesOf(run), ", ")))
	return choice{cards: run}
}

// left says how many cards are left, and why not more.
func (p *planner) left(free int) string {
	text := fmt.Sprintf("%d of %s are left", free, number(len(p.Cards)))
	if free == 1 {
		text = fmt.Sprintf("1 of %s is left", number(len(p.Cards)))
	}
	var why []string
	for _, u := range p.Cards {
		switch {
		case u.Card.Sick != "":
			why = append(why, u.Device+" is sick ("+u.Card.Sick+")")
		case len(u.Shares) > 0:
			why = append(why, u.Device+" has "+u.Shares[0].Owner)
		}
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, "; ") + ")"
	}
	return text
}

// pool places those that run on every card of the reward pool.
func (p *planner) pool(size int, wants []int) {
	if len(wants) == 0 {
		return
	}
	free := p.free(false)
	why := ""
	switch {
	case len(p.Cards) == 0:
		why = "the model needs the cards of the reward pool, but this process sees " + p.seen()
	case size > 0 && len(free) < size:
		why = fmt.Sprintf("the reward pool needs %s (reward_model.n_gpus_per_node), but %s: lower n_gpus_per_node, or give this process more cards with %s",
			number(size), p.left(len(free)), VisibleEnv)
	case len(free) == 0:
		why = "the model needs every card that is left, but " + p.left(0)
	}
	if why != "" {
		for _, i := range wants {
			p.refuse(i, "%s", why)
		}
		return
	}
	if size > 0 {
		free = free[:size]
	}
	p.Pool = devicesOf(free)
	for _, i := range wants {
		p.place(i, choice{cards: free})
	}
}

// place gives a want its cards, all or none.
func (p *planner) place(i int, on choice) {
	w := p.wants[i]
	for _, n := range on.cards {
		if on.why = p.conflict(w, p.Cards[n]); on.why != "" {
			break
		}
	}
	if on.why != "" {
		p.refuse(i, "%s", on.why)
		return
	}
	for _, n := range on.cards {
		u := &p.Cards[n]
		u.Shares = append(u.Shares, Share{Want: w, Whole: w.whole(), Planned: planned(w, u.Card)})
	}
	p.devices[i] = devicesOf(on.cards)
}

// planned is the memory of a card that is set aside for a want.
func planned(w Want, c Card) int64 {
	if w.whole() {
		return max(w.Bytes, c.MemoryBytes)
	}
	return max(w.Bytes, int64(w.Fraction*float64(c.MemoryBytes)))
}

// conflict says why a want cannot have a part of a card; "": it can.
func (p *planner) conflict(w Want, u Use) string {
	total := u.Card.MemoryBytes
	if most := int64(cmp.Or(w.Fraction, 1) * float64(total)); total > 0 && w.Bytes > most {
		if w.Fraction > 0 {
			return fmt.Sprintf("the model needs %s, but its fraction %v of %s on %s is %s: raise the fraction", GiB(w.Bytes), w.Fraction, GiB(total), u.Device, GiB(most))
		}
		return fmt.Sprintf("the model needs %s, but %s has %s: use a larger card or a smaller model", GiB(w.Bytes), u.Device, GiB(total))
	}
	sum, open, bytes := w.Fraction, w.Fraction == 0, planned(w, u.Card)
	var others []string
	for _, s := range u.Shares {
		others = append(others, s.describe())
		sum, open, bytes = sum+s.Fraction, open || s.Fraction == 0, bytes+s.Planned
	}
	const rounding = 1e-9 // 0.1 + 0.2 + 0.7
	has := u.Device + " has " + strings.Join(others, ", ")
	switch {
	case len(others) == 0:
		return ""
	case w.whole():
		return "the model needs a whole card, but " + has + ": write another device, or a fraction below 1"
	case u.Shares[0].Whole:
		return has + ", which uses the whole card: write another device"
	case sum > 1+rounding:
		return fmt.Sprintf("with the fraction %v of this model the fractions on %s add up to %.4g: %s. Lower fractions until they add up to at most 1", w.Fraction, u.Device, sum, has)
	case open && sum > 1-rounding:
		return has + ", and the fractions leave no memory for models without a fraction: lower fractions, or write another device"
	case total > 0 && bytes > total:
		return fmt.Sprintf("with this model %s of the %s of %s are planned: %s. Write another device", GiB(bytes), GiB(total), u.Device, has)
	}
	return ""
}

// describe is a share for people: reward default, component pick (0.5).
func (s Share) describe() string {
	switch {
	case s.Whole:
		return s.Owner + " (whole)"
	case s.Fraction > 0:
		return fmt.Sprintf("%s (%v)", s.Owner, s.Fraction)
	}
	return s.Owner
}

func (p *planner) refuse(i int, format string, args ...any) {
	p.unfit = append(p.unfit, Unfit{i, p.wants[i].Owner, fmt.Sprintf(format, args...)})
}

// done sums up.
func (p *planner) done() (Plan, error) {
	for i, w := range p.wants {
		if p.devices[i] != nil {
			p.Owners = append(p.Owners, Held{w, p.devices[i]})
		}
	}
	for i := range p.Cards {
		u := &p.Cards[i]
		u.Left = -1
		for _, s := range u.Shares {
			u.Planned += s.Planned
		}
		if u.Card.MemoryBytes > 0 {
			u.Left = u.Card.MemoryBytes - u.Planned
		}
		if note := u.crowded(); note != "" {
			p.Notes = append(p.Notes, note)
		}
	}
	if len(p.unfit) == 0 {
		return p.Plan, nil
	}
	slices.SortStableFunc(p.unfit, func(a, b Unfit) int { return cmp.Compare(a.Want, b.Want) })
	return p.Plan, p.unfit
}

// crowded says what other processes have now of a card that is planned on.
func (u Use) crowded() string {
	free, total := u.Card.FreeBytes, u.Card.MemoryBytes
	if len(u.Shares) == 0 || total == 0 || free < 0 {
		return ""
	}
	whole := slices.ContainsFunc(u.Shares, func(s Share) bool { return s.Whole })
	if u.Planned <= free+librariesBytes && free >= librariesBytes && (!whole || len(u.Card.Processes) == 0) {
		return ""
	}
	var who []string
	for _, x := range u.Card.Processes {
		who = append(who, fmt.Sprintf("process %d (%s)", x.PID, x.Name))
	}
	by := ""
	if len(who) > 0 {
		by = ": " + strings.Join(who[:min(len(who), 4)], ", ")
	}
	return fmt.Sprintf("%s has %s free now of %s; other programs use the rest%s. If they keep that memory, write fraction in addition to device", u.Device, GiB(free), GiB(total), by)
}

func devicesOf(cards []int) []string {
	out := make([]string, len(cards))
	for i, n := range cards {
		out[i] = Device(n)
	}
	return out
}

// number counts cards: 1 card, 2 cards.
func number(n int) string {
	if n == 1 {
		return "1 card"
	}
	return fmt.Sprintf("%d cards", n)
}
