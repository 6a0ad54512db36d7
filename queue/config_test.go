package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue"
)

func TestAConfigurationSaysEachThingThatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]queue.Config{
		"a name of 201 bytes, want at most 200":                                                          {Name: strings.Repeat("x", 201)},
		"a lease of 99ms is too short; want 100 ms or more":                                              {Lease: 99 * time.Millisecond},
		"pull requests need 0 < pull_min < pull_max, not 10ms and 10ms":                                  {PullMax: 10 * time.Millisecond},
		"pull requests need 0 < pull_min < pull_max, not -1ns and 100ms":                                 {PullMin: -1},
		"max_tickets must be positive":                                                                   {MaxTickets: -1},
		"3 replicas: want 1, or up to 5 of a NATS server that is a cluster":                              {Replicas: 3},
		"replicas: want 1…5, got 6":                                                                      {Replicas: 6, URLs: []string{"nats://a"}},
		"replicas: want 1…5, got -1":                                                                     {Replicas: -1},
		"nats_listen: nats names a NATS that runs by itself, and this starts one: leave one of them out": {Listen: "127.0.0.1:0", URLs: []string{"nats://a"}},
		`nats_listen: want an address and a port such as 127.0.0.1:8080, got "4222"`:                     {Listen: "4222"},
		`nats_listen: want a port of 0…65535, got "nats"`:                                                {Listen: "127.0.0.1:nats"},
		`nats_listen: want a port of 0…65535, got "-1"`:                                                  {Listen: "127.0.0.1:-1"},
		`nats_listen: want a port of 0…65535, got "65536"`:                                               {Listen: "127.0.0.1:65536"},
		"nats_listen 0.0.0.0:4222 can be reached from other machines: set acl_file":                      {Listen: "0.0.0.0:4222"},
		"nats_listen :4222 can be reached from other machines: set acl_file":                             {Listen: ":4222"},
		"nats_listen gw.example:4222 can be reached from other machines: set acl_file":                   {Listen: "gw.example:4222"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, cfg.WithDefaults().Validate(), want)
			_, err := queue.Open(t.Context(), cfg)
			require.ErrorContains(t, err, want)
			cfg.URLs = []string{"nats://127.0.0.1:1"}
			if cfg.Replicas != 3 { // which a cluster may have
				_, err = queue.Join(t.Context(), cfg)
				require.Error(t, err)
				require.NotContains(t, err.Error(), "connection", "nobody is asked")
			}
		})
	}
	err := queue.Config{MaxTickets: -1, Listen: "x"}.WithDefaults().Validate()
	for _, want := range []string{"max_tickets", "nats_listen"} {
		require.ErrorContains(t, err, want, "all of it at once")
	}
	for _, right := range []queue.Config{
		{}, {Listen: "localhost:65535"}, {Listen: "[::1]:0"}, {Listen: "0.0.0.0:4222", Access: func(*server.Options) {}}, {Replicas: 5, URLs: []string{"nats://a"}},
	} {
		require.NoError(t, right.WithDefaults().Validate())
	}
}
