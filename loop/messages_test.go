package loop_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

func TestTheSchemaHasEveryStageInWhichASampleMayBeMissing(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../wire/messages.json")
	require.NoError(t, err)
	var schema struct {
		Objects struct {
			Missing struct {
				Fields []struct {
					Name   string
					Values []string
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(b, &schema))
	for _, f := range schema.Objects.Missing.Fields {
		if f.Name == "stage" {
			require.ElementsMatch(t, append(loop.Stages(), "not arrived", "expired"), f.Values)
			return
		}
	}
	require.Fail(t, "messages.json has no missing.stage")
}

func TestTheGatewayDoesSomethingWithEveryMessageOfAClient(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../wire/messages.json")
	require.NoError(t, err)
	var schema struct {
		Protocols []struct {
			Name     string
			Messages []struct {
				Type, From string
				Example    json.RawMessage
			}
		}
	}
	require.NoError(t, json.Unmarshal(b, &schema))
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		handled := 0
		for _, m := range schema.Protocols[0].Messages {
			msg, err := wire.DecodeControl(m.Example)
			require.NoError(t, err)
			switch err := s.Manager.Hear(p.session, msg); {
			case m.From != "client" || m.Type == "hello" || m.Type == "fetch" || m.Type == "phase": // these have methods of their own
				require.ErrorContains(t, err, "this gateway does not handle the message "+m.Type)
			default:
				require.NoError(t, err, m.Type)
				handled++
			}
		}
		require.NotZero(t, handled)
	})
}
