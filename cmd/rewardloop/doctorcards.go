package main

import (
	"context"
	"strings"

	"github.com/rewardloop/rewardloop/pool/cards"
)

// cards lists the cards. Whether they are enough is what the check of the configuration says.
func (x *exam) cards(ctx context.Context) check {
	c := check{Name: "cards", State: stateOK}
	found, err := cards.Find(ctx, cards.Options{})
	if err != nil {
		c.State, c.Detail, c.Advice = stateWarn, err.Error(), "models that run on the CPU are not concerned; rewardloop devices says the same"
		return c
	}
	lines := []string{cardsSeen(found)}
	for i, card := range found.Cards {
		lines = append(lines, cards.Device(i)+" "+cardLine(card))
		if card.Sick != "" {
			c.State, c.Advice = stateWarn, "no model is put on a card that is sick; mend it, or leave it out of "+cards.VisibleEnv
		}
	}
	c.Detail = strings.Join(append(lines, found.Notes...), "\n")
	return c
}
