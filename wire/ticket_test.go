package wire_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/wire"
)

func TestATicketKeepsEveryField(t *testing.T) {
	t.Parallel()
	full := wire.Ticket{
		ID: "ü\"", Run: "r", Epoch: 1 << 60, Step: -1, Reward: "ocr", Gateway: "gw", Attempt: 2, Avoid: []string{"w1", "w<2"}, Aside: true, Weight: 2.5,
		Claim: "wss://[::1]:8080/v1/claim", Token: "t.0<", Bytes: 1 << 40,
		Deadline: time.Date(2031, 2, 3, 4, 5, 6, 789, time.UTC), Group: true, Traceparent: traceparent,
	}
	for v, i := reflect.ValueOf(full), 0; i < v.NumField(); i++ {
		if v.Type().Field(i).Name != "Queue" { // the subject says it
			require.False(t, v.Field(i).IsZero(), "this test forgets %s", v.Type().Field(i).Name)
		}
	}
	for _, ticket := range []wire.Ticket{full, {Deadline: full.Deadline}} {
		b, err := ticket.Encode()
		require.NoError(t, err)
		assert.Equal(t, general(t, ticket), string(b))
		back, err := wire.DecodeTicket(b)
		require.NoError(t, err)
		assert.Equal(t, ticket, back)
	}
}

func TestAWeightOfOneIsNotWritten(t *testing.T) {
	t.Parallel()
	plain := wire.Ticket{ID: "a", Deadline: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)}
	one := plain
	one.Weight = 1
	b, err := one.Encode()
	require.NoError(t, err)
	assert.Equal(t, general(t, plain), string(b))
	_, err = wire.DecodeTicket([]byte(`{"weight":1e999}`))
	require.Error(t, err)
}

func TestATicketOfALaterReleaseIsRead(t *testing.T) {
	t.Parallel()
	got, err := wire.DecodeTicket([]byte(`{"later":{"x":[1]},"id":"a","run":"r","gateway":"g","attempt":1,"bytes":2,"deadline":"2031-02-03T04:05:06Z"}`))
	require.NoError(t, err)
	assert.Equal(t, "a", got.ID)
}

func TestATicketThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `null`, `{}x`, `{"id":1}`, `{"id":"a","id":"b"}`, `{"attempt":"1"}`, `{"deadline":"tomorrow"}`, `{"avoid":[1]}`, `{"bytes":1.5}`} {
		_, err := wire.DecodeTicket([]byte(text))
		require.Error(t, err, text)
	}
	_, err := wire.Ticket{Deadline: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}.Encode()
	require.Error(t, err)
}

func BenchmarkTicket(b *testing.B) {
	t := wire.Ticket{ID: "flowgrpo/120/train/8f6c2f0e_0_17", Run: "flowgrpo", Epoch: 1 << 50, Step: 120, Gateway: "gw-1", Attempt: 1, Bytes: 786432, Deadline: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		text, err := t.Encode()
		if err == nil {
			_, err = wire.DecodeTicket(text)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
