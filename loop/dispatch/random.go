package dispatch

// random is Random: whoever is free first takes what is next.
type random struct{}

func (random) Choose(v view) (Decision, bool) {
	s := v.profile.waiting.turn()
	return Decision{Sample: s}, s != nil
}

func (random) Reconsider(view) []Sample { return nil }
