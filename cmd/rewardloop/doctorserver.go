package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop"
)

// serverPatience is how long a running server may take to say how its rewards fare.
const serverPatience = 5 * time.Second

// askServer asks the server that listens at the configuration's address how its rewards
// fare: what it knows of its workers, engines and disks no other process can find out.
func (x *exam) askServer(ctx context.Context) ([]check, error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	token := ""
	if file := x.cfg.Server.TokenFile; file != "" {
		var err error
		if token, err = tokenOf(file); err != nil {
			return nil, err
		}
	}
	scheme := "http://"
	if x.cfg.Server.TLSCert != "" {
		scheme = "https://"
	}
	var answer readiness
	server := serverFlags{address: scheme + x.cfg.Server.Listen, token: token}
	err := server.get(ctx, "/readyz", &answer, http.StatusServiceUnavailable)
	switch {
	case err != nil:
		return nil, err
	case answer.Ready == nil:
		return nil, errors.New("the server does not report whether it is ready")
	}
	c := check{Name: "running server", Required: true, State: stateOK, Detail: "ready"}
	if !*answer.Ready {
		c.State, c.Detail = stateMissing, "not ready: "+strings.Join(answer.Reasons, "; ")
	}
	checks := []check{c}
	for _, p := range answer.Rewards {
		checks = append(checks, fares(p))
	}
	return checks, nil
}

// fares is the line of a reward of a running server.
func fares(p loop.Progress) check {
	c := check{Name: "running reward " + p.Reward, Required: true, State: stateOK, Detail: "samples are scored"}
	samples := fmt.Sprintf("%d waiting, %d with workers, since %s", p.Waiting, p.Running, p.Since.Local().Format(time.TimeOnly))
	switch p.State {
	case loop.Progressing:
		if p.Why != "" {
			c.State, c.Detail = stateWarn, p.Why
		}
	case loop.Slow:
		c.State, c.Detail = stateWarn, fmt.Sprintf("samples of the reward wait: %s (%s)", p.Why, samples)
	case loop.Failing:
		c.State, c.Detail = stateMissing, fmt.Sprintf("%s (%s)", p.Why, samples)
	default:
		c.State, c.Detail = stateMissing, fmt.Sprintf("no sample can be scored: %s (%s)", p.Why, samples)
	}
	return c
}
