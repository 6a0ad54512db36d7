package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/pool/cards"
	"github.com/rewardloop/rewardloop/rewards"
)

// Book contains the GPUs that this process may use and their assignment to models.
type Book struct {
	Found cards.Found
	Plan  cards.Plan
	// Unknown is why the GPUs could not be determined.
	Unknown error
}

// PlanCards assigns the models of a configuration to GPUs. PlanCards queries the machine for its
// GPUs only if a model runs on a GPU or look is true; the query takes at most 30 s. The error is a
// config.FaultsError for models that do not fit; the plan is then returned as well, without these
// models.
func PlanCards(ctx context.Context, cfg *config.Config, reg *rewards.Registry, look bool) (b Book, err error) {
	asked := cfg.AsksForCards(reg)
	if asked || look {
		if b.Found, b.Unknown = cards.Find(ctx, cards.Options{}); b.Unknown != nil && asked {
			return b, cfg.UnknownCards(reg, b.Unknown)
		}
	}
	b.Plan, err = cfg.PlanCards(reg, b.Found.Cards)
	if faults, ok := errors.AsType[config.FaultsError](err); ok && len(b.Found.Cards) == 0 && len(b.Found.Notes) > 0 {
		for i := range faults {
			faults[i].Message += " (" + strings.Join(b.Found.Notes, "; ") + ")"
		}
	}
	return b, err
}

// everyCard is the book of a process without a configuration: the pool is every healthy card.
func everyCard() (b Book, err error) {
	if b.Found, b.Unknown = cards.Find(context.Background(), cards.Options{}); b.Unknown != nil {
		return b, b.Unknown
	}
	for i, c := range b.Found.Cards {
		if c.Sick == "" {
			b.Plan.Pool = append(b.Plan.Pool, cards.Device(i))
		}
		b.Plan.Cards = append(b.Plan.Cards, cards.Use{Device: cards.Device(i), Card: c})
	}
	return b, nil
}

// visible is the CUDA_VISIBLE_DEVICES of the child of each card, by n; nil: nobody has looked
// for cards.
func (b Book) visible() (out []string) {
	for _, c := range b.Found.Cards {
		out = append(out, c.Visible())
	}
	return out
}

// memory is how many bytes models may have of each card on which it is known.
func (b Book) memory() map[string]int64 {
	out := map[string]int64{}
	for _, u := range b.Plan.Cards {
		if n := u.Budget(); n > 0 {
			out[u.Device] = n
		}
	}
	return out
}

// usable says why nothing can run on cuda:<n>; nil: it can, as far as is known.
func (b Book) usable(device string) error {
	for _, u := range b.Plan.Cards {
		if u.Device != device {
			continue
		}
		if u.Card.Sick != "" {
			return fmt.Errorf("%s (%s) is not used: %s", device, u.Card.Visible(), u.Card.Sick)
		}
		return nil
	}
	return fmt.Errorf("no device %s: this process sees %s; rewardloop devices shows the cards", device, rewards.Count(len(b.Plan.Cards), "card"))
}

// leaveUnplanned leaves to other processes the rewards whose models have no card here.
func (p *parts) leaveUnplanned() error {
	_, err := p.scorers.Readers.Devices.book()
	unfit, ok := errors.AsType[config.FaultsError](err)
	if !ok {
		return err
	}
	var errs []error
	for name, m := range p.managers {
		section := "rewards." + name + "."
		if name == config.DefaultProfile {
			section = "reward."
		}
		why := slices.DeleteFunc(slices.Clone(unfit), func(f config.Fault) bool { return !strings.HasPrefix(f.Key, section) })
		if len(why) > 0 {
			p.lacking[name] = why
			errs = append(errs, m.Close())
			delete(p.managers, name)
		}
	}
	return errors.Join(errs...)
}

// logCards says which models have which card, one line a card.
func (p *parts) logCards(ctx context.Context) {
	book, _ := p.scorers.Readers.Devices.book() // what does not fit was refused, or is left to others
	for _, u := range book.Plan.Cards {
		var owners []string
		for _, s := range u.Shares {
			owners = append(owners, s.Owner)
		}
		if len(owners) > 0 {
			p.log.InfoContext(ctx, "a GPU is assigned to models", "device", u.Device, "card", u.Card.Visible(), "name", u.Card.Name, "models_of", strings.Join(owners, ", "), "bytes", u.Budget())
		}
	}
	for _, note := range slices.Concat(book.Found.Notes, book.Plan.Notes) {
		p.log.WarnContext(ctx, "GPUs of this machine may not work as expected", "note", note)
	}
}
