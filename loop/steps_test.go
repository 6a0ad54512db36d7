package loop_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

func TestTheMomentFromWhichNothingMoreOfAStepComesIsTold(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	o := rig.Options{Workers: 1, Profiles: profiles(t, component(hashing(time.Second))), StepArrived: func() { told.Add(1) }}
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		in := func(id string, step int64) {
			sample := rig.Sample(id, 30)
			sample.Step = step
			p.send(t, sample)
		}
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 2})
		in("a", 1)
		require.Zero(t, told.Load(), "one of two is here")
		in("b", 1)
		require.EqualValues(t, 1, told.Load())

		in("c", 2)
		require.EqualValues(t, 1, told.Load(), "nobody said how many step 2 has")
		s.Manager.Declare(p.session, wire.Step{Step: 2})
		require.EqualValues(t, 2, told.Load(), "it has ended")

		s.Manager.Declare(p.session, wire.Step{Step: 3, Expected: 0})
		require.EqualValues(t, 2, told.Load(), "a step without samples has nothing to hurry")
		for _, id := range []string{"a", "b", "c"} {
			p.result(t, id)
		}
	})
}
