package acl_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue/acl"
)

// forms are the ways in which a bus gets its users, each with a role's connection.
func forms(t *testing.T, test func(t *testing.T, connect func(acl.Role) *client)) {
	t.Helper()
	run := func(name string, form func(t *testing.T) (*server.Server, func(acl.Role) nats.Option)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, option := form(t)
			test(t, func(role acl.Role) *client { return dial(t, s, role, option(role)) })
		})
	}
	nkeyed := func(t *testing.T, dir string) func(acl.Role) nats.Option {
		t.Helper()
		return func(role acl.Role) nats.Option {
			key, err := acl.NKey(filepath.Join(dir, acl.SeedFile(role)))
			require.NoError(t, err)
			return key
		}
	}
	run("acl.conf, embedded", func(t *testing.T) (*server.Server, func(acl.Role) nats.Option) {
		t.Helper()
		dir := made(t, acl.Config{})
		return bus(t, dir), nkeyed(t, dir)
	})
	run("acl.conf, included", func(t *testing.T) (*server.Server, func(acl.Role) nats.Option) {
		t.Helper()
		dir := made(t, acl.Config{})
		return including(t, dir, "acl.conf"), nkeyed(t, dir)
	})
	run("resolver.conf, included", func(t *testing.T) (*server.Server, func(acl.Role) nats.Option) {
		t.Helper()
		dir := made(t, acl.Config{JWT: true})
		return including(t, dir, "resolver.conf"), func(role acl.Role) nats.Option {
			creds, err := acl.Creds(filepath.Join(dir, acl.CredsFile(role)))
			require.NoError(t, err)
			return creds
		}
	})
}

func TestAWorkerCanDoItsPart(t *testing.T) {
	t.Parallel()
	forms(t, func(t *testing.T, connect func(acl.Role) *client) {
		t.Helper()
		ctx := t.Context()
		g, w := connect(acl.Gateway), connect(acl.Worker)
		stream := declare(t, g)
		heard, err := g.SubscribeSync("rl.presence")
		require.NoError(t, err)
		require.NoError(t, g.Flush())

		revoked, err := w.SubscribeSync("rl.revoke")
		require.NoError(t, err)
		woken, err := w.SubscribeSync("rl.wake.ocr")
		require.NoError(t, err)
		gateways, err := w.SubscribeSync("rl.gateway")
		require.NoError(t, err)
		tickets, err := w.SubscribeSync(w.NewInbox() + ".*")
		require.NoError(t, err)
		require.NoError(t, w.Flush())

		for _, queue := range []struct{ subject, consumer string }{{"rl.ticket._", "q-_"}, {"rl.ticket.ocr", "q-ocr"}} {
			require.NoError(t, g.Publish(queue.subject, []byte("ticket")))
			reply := strings.TrimSuffix(tickets.Subject, "*") + "1"
			require.NoError(t, w.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.RL_TICKETS."+queue.consumer, reply, []byte(`{"batch":1,"expires":5000000000,"group":"all"}`)))
			m, err := tickets.NextMsg(10 * time.Second)
			require.NoError(t, err)
			require.Equal(t, "ticket", string(m.Data))
			require.NoError(t, m.InProgress())
			require.NoError(t, m.AckSync(nats.AckWait(10*time.Second)))
		}
		info, err := stream.Info(ctx)
		require.NoError(t, err)
		require.Zero(t, info.State.Msgs, "both were acknowledged")

		require.NoError(t, w.Publish("rl.presence", []byte("{}")))
		_, err = heard.NextMsg(10 * time.Second)
		require.NoError(t, err)
		require.NoError(t, g.Publish("rl.revoke", nil))
		_, err = revoked.NextMsg(10 * time.Second)
		require.NoError(t, err)
		require.NoError(t, g.Publish("rl.wake.ocr", nil))
		_, err = woken.NextMsg(10 * time.Second)
		require.NoError(t, err)
		require.NoError(t, g.Publish("rl.gateway", nil))
		_, err = gateways.NextMsg(10 * time.Second)
		require.NoError(t, err)
		w.content(t)
		g.content(t)
	})
}

func TestAWorkerReadsWritesAndWatchesTheBucketOfTheFleet(t *testing.T) {
	t.Parallel()
	forms(t, func(t *testing.T, connect func(acl.Role) *client) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		g, w := connect(acl.Gateway), connect(acl.Worker)
		declare(t, g)
		ofGateway, err := g.js.KeyValue(ctx, "RL_FLEET")
		require.NoError(t, err)
		kv, err := w.js.KeyValue(ctx, "RL_FLEET")
		require.NoError(t, err)

		first, err := kv.Put(ctx, "rate.judge", []byte("1"))
		require.NoError(t, err)
		entry, err := kv.Get(ctx, "rate.judge")
		require.NoError(t, err)
		require.Equal(t, "1", string(entry.Value()))
		_, err = kv.Update(ctx, "rate.judge", []byte("2"), first)
		require.NoError(t, err)
		_, err = kv.Create(ctx, "rate.judge", nil)
		require.ErrorIs(t, err, jetstream.ErrKeyExists)
		_, err = kv.Get(ctx, "absent")
		require.ErrorIs(t, err, jetstream.ErrKeyNotFound)

		for name, watch := range map[string]func() (jetstream.KeyWatcher, error){
			"all":      func() (jetstream.KeyWatcher, error) { return kv.WatchAll(ctx) },
			"a branch": func() (jetstream.KeyWatcher, error) { return kv.Watch(ctx, "rate.*") },
			"several": func() (jetstream.KeyWatcher, error) {
				return kv.WatchFiltered(ctx, []string{"rate.judge", "breaker.>"})
			},
		} {
			watcher, err := watch()
			require.NoError(t, err, name)
			require.Equal(t, "2", string((<-watcher.Updates()).Value()), name)
			require.Nil(t, <-watcher.Updates(), "%s: that is all there is", name)
			_, err = ofGateway.Put(ctx, "rate.judge", []byte("2"))
			require.NoError(t, err)
			require.Equal(t, "2", string((<-watcher.Updates()).Value()), name)
			require.NoError(t, watcher.Stop(), name)
		}
		keys, err := kv.Keys(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{"rate.judge"}, keys)
		require.NoError(t, kv.Delete(ctx, "rate.judge"))
		require.NoError(t, kv.Purge(ctx, "rate.judge"))
		_, err = kv.Status(ctx)
		require.NoError(t, err)
		w.content(t)

		stream, err := g.js.Stream(ctx, "KV_RL_FLEET")
		require.NoError(t, err)
		require.Zero(t, stream.CachedInfo().State.Consumers, "those who watched left nothing behind")
		g.content(t)
	})
}

// A bucket of 8 MB makes the server wait for the watcher's word that it may go on,
// which is a subject of its own.
func TestAWorkerWatchesMoreThanTheServerSendsAtOnce(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{})
	s := bus(t, dir)
	g, w := keyed(t, s, dir, acl.Gateway), keyed(t, s, dir, acl.Worker)
	declare(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	kv, err := g.js.KeyValue(ctx, "RL_FLEET")
	require.NoError(t, err)
	const keys = 256
	value := make([]byte, 32<<10)
	for i := range keys {
		_, err := kv.Put(ctx, "k."+string(rune('a'+i%16))+string(rune('a'+i/16)), value)
		require.NoError(t, err)
	}
	kv, err = w.js.KeyValue(ctx, "RL_FLEET")
	require.NoError(t, err)
	watcher, err := kv.WatchAll(ctx)
	require.NoError(t, err)
	for range keys {
		require.NotNil(t, <-watcher.Updates())
	}
	require.Nil(t, <-watcher.Updates())
	require.NoError(t, watcher.Stop())
	w.content(t)
}

func TestAWorkerIsRefusedEverythingElse(t *testing.T) {
	t.Parallel()
	forms(t, func(t *testing.T, connect func(acl.Role) *client) {
		t.Helper()
		g, w := connect(acl.Gateway), connect(acl.Worker)
		stream := declare(t, g)
		require.NoError(t, g.Publish("rl.ticket._", []byte("ticket")))
		for _, subject := range []string{
			"rl.ticket._", "rl.wake._", "rl.revoke", "rl.gateway", "rl.other", "_INBOX.x", "_INBOX_RLG.x", "_INBOX_RLW.x",
			"$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.RL_TICKETS",
			"$JS.API.STREAM.CREATE.RL_TICKETS", "$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.UPDATE.RL_TICKETS", "$JS.API.STREAM.DELETE.RL_TICKETS",
			"$JS.API.STREAM.PURGE.RL_TICKETS", "$JS.API.STREAM.PURGE.KV_RL_FLEET", "$JS.API.STREAM.DELETE.KV_RL_FLEET", "$JS.API.STREAM.UPDATE.KV_RL_FLEET",
			"$JS.API.STREAM.MSG.GET.RL_TICKETS", "$JS.API.STREAM.MSG.DELETE.RL_TICKETS", "$JS.API.STREAM.SNAPSHOT.RL_TICKETS", "$JS.API.DIRECT.GET.RL_TICKETS",
			"$JS.API.CONSUMER.CREATE.RL_TICKETS.mine", "$JS.API.CONSUMER.CREATE.RL_TICKETS.mine.rl.ticket.>", "$JS.API.CONSUMER.DURABLE.CREATE.RL_TICKETS.mine",
			"$JS.API.CONSUMER.CREATE.RL_TICKETS", "$JS.API.CONSUMER.DELETE.RL_TICKETS.q-_", "$JS.API.CONSUMER.PAUSE.RL_TICKETS.q-_",
			"$JS.API.CONSUMER.LIST.RL_TICKETS", "$JS.API.CONSUMER.INFO.RL_TICKETS.q-_", "$JS.API.CONSUMER.UNPIN.RL_TICKETS.q-_",
			"$JS.ACK.KV_RL_FLEET.x.1.1.1.1.1", "$KV.OTHER.x", "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$SRV.PING",
		} {
			require.NoError(t, w.Publish(subject, nil))
			w.refused(t, "Publish", subject)
		}
		for _, subject := range []string{
			"rl.ticket.>", "rl.ticket._", "rl.presence", "rl.>", ">", "*", "_INBOX.>", "_INBOX_RLG.>", "_INBOX.*",
			"$SYS.>", "$JS.>", "$JS.API.>", "$JS.ACK.RL_TICKETS.>", "$JS.EVENT.ADVISORY.>", "$KV.RL_FLEET.>", "$KV.>",
		} {
			_, err := w.SubscribeSync(subject)
			require.NoError(t, err)
			w.refused(t, "Subscription", subject)
		}
		info, err := stream.Info(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, info.State.Msgs, "the gateway's one ticket is there, and no other")
		require.Equal(t, 2, info.State.Consumers)
	})
}

// What a person sees of a refusal who asks by the library.
func TestARefusedRequestSaysSoAndDoesNotSucceed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	dir := made(t, acl.Config{})
	s := bus(t, dir)
	g, w := keyed(t, s, dir, acl.Gateway), keyed(t, s, dir, acl.Worker)
	declare(t, g)
	for subject, ask := range map[string]func(context.Context) error{
		"$JS.API.STREAM.DELETE.RL_TICKETS":       func(ctx context.Context) error { return w.js.DeleteStream(ctx, "RL_TICKETS") },
		"$JS.API.STREAM.DELETE.KV_RL_FLEET":      func(ctx context.Context) error { return w.js.DeleteKeyValue(ctx, "RL_FLEET") },
		"$JS.API.CONSUMER.DELETE.RL_TICKETS.q-_": func(ctx context.Context) error { return w.js.DeleteConsumer(ctx, "RL_TICKETS", "q-_") },
		"$JS.API.INFO": func(ctx context.Context) error {
			_, err := w.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "MINE"})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		require.Error(t, ask(ctx), subject)
		cancel()
		w.refused(t, "Publish", subject)
	}
	_, err := g.js.Stream(t.Context(), "RL_TICKETS")
	require.NoError(t, err)
}

func TestAGatewayCanDoItsPart(t *testing.T) {
	t.Parallel()
	forms(t, func(t *testing.T, connect func(acl.Role) *client) {
		t.Helper()
		ctx := t.Context()
		g := connect(acl.Gateway)
		declare(t, g)
		stream := declare(t, g) // again, as at every start
		_, err := stream.Consumer(ctx, "q-ocr")
		require.NoError(t, err)
		ack, err := g.js.Publish(ctx, "rl.ticket.ocr", []byte("ticket"))
		require.NoError(t, err)
		require.Equal(t, "RL_TICKETS", ack.Stream)

		kv, err := g.js.KeyValue(ctx, "RL_FLEET")
		require.NoError(t, err)
		_, err = kv.Put(ctx, "a", nil)
		require.NoError(t, err)
		require.NoError(t, kv.Delete(ctx, "a"))
		require.NoError(t, kv.PurgeDeletes(ctx, jetstream.DeleteMarkersOlderThan(-1)))
		for _, subject := range []string{"rl.presence", "_INBOX_RLG.>", "_INBOX_RLW.>", "rl.revoke", "rl.wake._", "rl.gateway"} {
			_, err := g.SubscribeSync(subject)
			require.NoError(t, err)
		}
		g.content(t)

		for _, subject := range []string{
			"$JS.API.STREAM.CREATE.OTHER", "$JS.API.STREAM.DELETE.RL_TICKETS", "$JS.API.STREAM.PURGE.RL_TICKETS", "$JS.API.CONSUMER.DELETE.RL_TICKETS.q-ocr",
			"$SYS.REQ.SERVER.PING", "rl.other",
		} {
			require.NoError(t, g.Publish(subject, nil))
			g.refused(t, "Publish", subject)
		}
		for _, subject := range []string{"rl.ticket.>", "_INBOX.>", ">", "$SYS.>"} {
			_, err := g.SubscribeSync(subject)
			require.NoError(t, err)
			g.refused(t, "Subscription", subject)
		}
	})
}

// The limit that docs/queue-security.md names: NATS does not check where an answer
// goes. If this fails, NATS has learned to, and the page may promise more.
func TestAServerSendsAnswersWhereTheRequestSays(t *testing.T) {
	t.Parallel()
	dir := made(t, acl.Config{})
	s := bus(t, dir)
	g, w := keyed(t, s, dir, acl.Gateway), keyed(t, s, dir, acl.Worker)
	declare(t, g)
	kv, err := w.js.KeyValue(t.Context(), "RL_FLEET")
	require.NoError(t, err)
	_, err = kv.Put(t.Context(), "a", []byte("not a gateway's word"))
	require.NoError(t, err)
	revoked, err := g.SubscribeSync("rl.revoke")
	require.NoError(t, err)
	require.NoError(t, g.Flush())
	for _, to := range []string{"rl.revoke", "rl.ticket._"} {
		require.NoError(t, w.PublishRequest("$JS.API.DIRECT.GET.KV_RL_FLEET.$KV.RL_FLEET.a", to, nil))
	}
	m, err := revoked.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "not a gateway's word", string(m.Data))
	require.Equal(t, "KV_RL_FLEET", m.Header.Get(jetstream.StreamHeader), "by this a receiver can tell")
	tickets, err := w.SubscribeSync(w.NewInbox())
	require.NoError(t, err)
	require.NoError(t, w.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.RL_TICKETS.q-_", tickets.Subject, []byte(`{"batch":1,"expires":5000000000,"group":"all"}`)))
	m, err = tickets.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "not a gateway's word", string(m.Data))
	require.Equal(t, "KV_RL_FLEET", m.Header.Get(jetstream.StreamHeader), "through the stream too")

	// A watcher's messages go where it says as well, but keep their subject.
	request := `{"stream_name":"KV_RL_FLEET","config":{"name":"x","deliver_subject":"rl.revoke","ack_policy":"none","deliver_policy":"all"}}`
	require.NoError(t, w.Publish("$JS.API.CONSUMER.CREATE.KV_RL_FLEET.x", []byte(request)))
	m, err = revoked.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "$KV.RL_FLEET.a", m.Subject)
}

func TestARoleThatIsNoneMayDoNothing(t *testing.T) {
	t.Parallel()
	publish, subscribe := acl.Permissions("janitor")
	// To NATS an absent list allows everything.
	require.NotNil(t, publish)
	require.NotNil(t, subscribe)
	require.Empty(t, publish)
	require.Empty(t, subscribe)
}

// The page's table is the one of Grants.
func TestThePageListsWhatEachRoleMayDo(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "queue-security.md"))
	require.NoError(t, err)
	var listed []string
	for line := range strings.Lines(string(page)) {
		if strings.Contains(line, "` | gateway | ") || strings.Contains(line, "` | both | ") {
			listed = append(listed, strings.TrimSpace(line))
		}
	}
	// rows are a table's: who may do it, and what for.
	rows := func(all, workers []acl.Grant) (rows []string) {
		for _, g := range all {
			who := "gateway"
			if slices.Contains(workers, g) {
				who = "both"
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", g.Subject, who, g.For))
		}
		return rows
	}
	publish, subscribe := acl.Grants(acl.Gateway)
	workersPublish, workersSubscribe := acl.Grants(acl.Worker)
	require.Equal(t, append(rows(publish, workersPublish), rows(subscribe, workersSubscribe)...), listed)
	for _, g := range append(workersPublish, workersSubscribe...) {
		require.Contains(t, append(publish, subscribe...), g, "a gateway may do what a worker may")
	}
}
