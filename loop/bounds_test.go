package loop_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/testkit/rig"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Eight clients, each of which would be given as much as all may hold together, send
// whatever their credit allows for a minute, and half of them leave and come back.
func TestFramesAndUnusedCreditTogetherStayWithinTheBound(t *testing.T) {
	t.Parallel()
	const bound, clients = 64 << 10, 8
	onStage(t, rig.Options{
		Workers: 1, Worker: workers.Config{Slots: 2},
		Loop:     loop.Config{MaxBytes: bound, CreditBytes: bound, MessageBytes: 8 << 10, CreditSamples: 64},
		Profiles: profiles(t, term(hashing(300*time.Millisecond))),
	}, func(t *testing.T, s *stage) {
		t.Helper()
		peers, spent, sent, most := make([]*peer, clients), make([]int64, clients), 0, int64(0)
		look := func() {
			held, unused := s.Manager.Bytes()
			require.LessOrEqual(t, held+unused, int64(bound), "%d bytes held, %d granted and not used", held, unused)
			most = max(most, held)
		}
		join := func(i int) {
			peers[i], spent[i] = s.connect(t, wire.Hello{Run: "run", Client: fmt.Sprint(i)}), 0
			look()
		}
		for i := range peers {
			join(i)
		}
		for round := range 200 {
			i := round % clients
			if round%40 < clients/2 {
				peers[round%40].drop()
				look()
				join(round % 40)
			}
			credit := peers[i].welcome().Credit.Bytes
			for _, more := range got[*wire.Credit](peers[i]) {
				credit = max(credit, more.Bytes)
			}
			for n := 0; ; n++ {
				sample := rig.Sample(fmt.Sprintf("s%d-%d", round, n), 3000)
				msg, err := wire.Encode(sample, wire.Options{})
				require.NoError(t, err)
				if spent[i]+msg.Size() > credit {
					break
				}
				spent[i] += msg.Size()
				peers[i].send(t, sample)
				look()
				sent++
			}
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
			look()
		}
		assert.Greater(t, sent, 100, "samples that were sent")
		assert.Greater(t, most, int64(bound/4), "the bytes that were held at most: the bound was not tried")
		for _, p := range peers {
			p.drop()
		}
	})
}
