package node

import (
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/standard"
)

// Scorers is the registry of everything that ships, with what the scorers share.
type Scorers struct {
	Registry *rewards.Registry
	Readers  *Readers
}

// NewScorers fills the registry. A machine on which nothing reads text is fine as
// long as no reward of the configuration has to.
func NewScorers(cfg *config.Config) (*Scorers, error) {
	readers, err := NewReaders(cfg.Pool)
	if err != nil {
		return nil, err
	}
	s := &Scorers{Registry: new(rewards.Registry), Readers: readers}
	standard.Register(s.Registry, standard.Deps{Readers: readers})
	return s, nil
}

// Names returns the registered scorers.
func (s *Scorers) Names() []rewards.Spec {
	specs := make([]rewards.Spec, 0, 8)
	for _, name := range s.Registry.Names() {
		spec, _ := s.Registry.Spec(name)
		specs = append(specs, spec)
	}
	return specs
}

// Close ends what the scorers share.
func (s *Scorers) Close() error { return s.Readers.Close() }
