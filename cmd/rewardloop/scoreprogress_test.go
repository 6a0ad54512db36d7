package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func TestProgressTellsCountRateTimeLeftFailuresAndWhoIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var stderr lockedBuffer
		p := newProgress(&env{stderr: &stderr}, false)
		require.False(t, p.bar)
		p.total(1000)
		one := 1.0
		for i := range 4 {
			it := &item{number: i + 1, end: int64(50 * (i + 1)), id: "s"}
			p.read(it)
			r := &outputLine{Outcome: rewards.Scored, RewardScore: &one}
			if i == 3 {
				r = &outputLine{Outcome: rewards.Failed, Errors: []rewards.ComponentError{{Class: rewards.BadInput, Message: "no picture"}}}
			}
			p.done(it, r)
		}
		late := &item{number: 5, id: "late"}
		p.read(late)
		p.waits(late)
		time.Sleep(20 * time.Second) // of the bubble's clock
		p.draw()
		require.Equal(t, "line 4 (s): failed: no picture\n"+
			" 20 %  4 of 5 lines read, 0.2/s, 1 not scored, about 1m20s left; for 20s waiting for line 5 (late)\n", stderr.String())
	})
}

func TestTheBarIsErasedBeforeAnythingElseIsPrinted(t *testing.T) {
	t.Parallel()
	var stderr lockedBuffer
	p := newProgress(&env{stderr: &stderr}, false)
	p.bar = true
	p.total(100)
	p.done(&item{number: 1, end: 50}, &outputLine{Outcome: rewards.Scored, RewardScore: new(float64)})
	p.draw()
	require.Contains(t, stderr.String(), "[============            ]  50 %")
	_, err := fmt.Fprintln(p, "a line of the log")
	require.NoError(t, err)
	require.Contains(t, stderr.String(), "left\r\x1b[Ka line of the log\n")
	require.True(t, p.allScored())
}

func TestOnlyTheFirstFailuresAreNamedButEveryRejectedLine(t *testing.T) {
	t.Parallel()
	var stderr lockedBuffer
	p := newProgress(&env{stderr: &stderr}, false)
	for i := range 3 * maxComplaints {
		for n, o := range []rewards.Outcome{rewards.Failed, rewards.Rejected} {
			p.done(&item{number: 2*i + n, id: string(o)}, &outputLine{Outcome: o})
		}
	}
	require.Equal(t, maxComplaints, strings.Count(stderr.String(), "(failed): failed"))
	require.Equal(t, 3*maxComplaints, strings.Count(stderr.String(), "(rejected): rejected"))
	require.Equal(t, 1, strings.Count(stderr.String(), "named in the output only"))
}
