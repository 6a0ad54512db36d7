package node

import (
	"fmt"
	"sync"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/slot"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
	"github.com/rewardloop/rewardloop/rewards/standard"
)

// Scorers is the registry of everything that ships, with what the scorers share.
type Scorers struct {
	Registry *rewards.Registry
	reader   *tesseract.Reader // nil: no Tesseract on this machine
	close    sync.Once
}

// NewScorers fills the registry. A machine without Tesseract is fine as long as no
// reward of the configuration reads text.
func NewScorers(cfg *config.Config) (*Scorers, error) {
	t := cfg.Pool.Tesseract
	reader, err := tesseract.New(tesseract.Config{
		Slots: t.Slots, PSM: t.PSM, Language: t.Language, Timeout: t.Timeout, Isolation: tesseract.Isolation(cfg.Pool.Isolation),
	})
	s := &Scorers{Registry: new(rewards.Registry)}
	var deps standard.Deps
	switch key := readsText(cfg); {
	case err == nil:
		s.reader, deps.Reader = reader, reader
	case key != "":
		return nil, fmt.Errorf("reward %s needs a text reader: %w", key, err)
	}
	standard.Register(s.Registry, deps)
	return s, nil
}

// readsText returns the first term that reads text, as profile.term.
func readsText(cfg *config.Config) string {
	for _, name := range sortedKeys(cfg.Profiles) {
		for _, term := range cfg.Profiles[name].Terms {
			if term.Scorer == "ocr" {
				return name + "." + term.Key
			}
		}
	}
	return ""
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

// TesseractStats says how the reader's slots are; false without a reader.
func (s *Scorers) TesseractStats() (slot.Stats, bool) {
	if s.reader == nil {
		return slot.Stats{}, false
	}
	return s.reader.Stats(), true
}

// Close ends the reader's child processes.
func (s *Scorers) Close() error {
	var err error
	s.close.Do(func() {
		if s.reader != nil {
			err = s.reader.Close()
		}
	})
	return err
}
