package payload_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/payload"
)

func TestAConfigurationSaysEachThingThatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]payload.Config{
		"lost_after is -1ns":                      {LostAfter: -1},
		"dial_timeout is -1ns":                    {DialTimeout: -1},
		"dial_patience is -1ns":                   {DialPatience: -1},
		"backoff_min is -1ns":                     {BackoffMin: -1},
		"stall_timeout is -1ns":                   {StallTimeout: -1},
		"backoff_max of 1ms is below backoff_min": {BackoffMax: time.Millisecond},
		"bulk_bytes is -1, want 1 or more":        {BulkBytes: -1},
		"max_open -1":                             {MaxOpen: -1},
		"max_conns -1 must be 1 or more":          {MaxConns: -1},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			_, err := payload.NewClient(payload.ClientOptions{Config: cfg})
			require.ErrorContains(t, err, "claim client: ")
			require.ErrorContains(t, err, want)
			_, err = payload.NewServer(payload.ServerOptions{Config: cfg})
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "a gateway, its name and its key are needed", "all of it at once")
		})
	}
	require.NoError(t, payload.Config{}.WithDefaults().Validate())
}
