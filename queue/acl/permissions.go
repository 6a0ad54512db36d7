package acl

// Role is the role of a process on the bus.
type Role string

// The roles. A process with both roles uses the gateway's key.
const (
	Gateway Role = "gateway" // has samples and publishes tickets
	Worker  Role = "worker"  // takes tickets and scores
)

// Roles returns all roles, the role with more permissions first.
func Roles() []Role { return []Role{Gateway, Worker} }

// grant is one subject that a role may publish or subscribe to.
type grant struct {
	Subject string // may end with a wildcard
	For     string // what it is needed for
}

// shared is what both roles publish. Requests to JetStream name the stream in their
// subject, so that nothing here reaches another stream. What the bucket needs was found
// with nats.go 1.55 against nats-server 2.15.
func shared() []grant {
	return []grant{
		{"$JS.API.CONSUMER.MSG.NEXT.RL_TICKETS.>", "request tickets"},
		{"$JS.ACK.RL_TICKETS.>", "extend, finish or return a ticket"},
		{"rl.presence", "workers announce themselves"},
		{"$KV.RL_FLEET.>", "write to the bucket of the fleet"},
		{"$JS.API.STREAM.INFO.KV_RL_FLEET", "open the bucket of the fleet"},
		{"$JS.API.DIRECT.GET.KV_RL_FLEET.$KV.RL_FLEET.>", "read a key of the bucket"},
		{"$JS.API.CONSUMER.CREATE.KV_RL_FLEET.>", "start watching the bucket"},
		{"$JS.API.CONSUMER.DELETE.KV_RL_FLEET.*", "stop watching the bucket"},
		{"$JS.FC.KV_RL_FLEET.>", "resume watching after a pause of flow control"},
	}
}

// grantsOf returns what a role may do, each subject with its reason. A role that is none
// may do nothing.
func grantsOf(role Role) (publish, subscribe []grant) {
	switch role {
	case Gateway:
		publish = []grant{
			{"rl.ticket.>", "publish tickets"},
			{"rl.wake.*", "announce new tickets to workers"},
			{"rl.revoke", "announce to workers that an attempt has ended"},
			{"rl.gateway", "gateways announce themselves"},
			{"$JS.API.INFO", "check that JetStream is available"},
			{"$JS.API.STREAM.CREATE.RL_TICKETS", "create the stream of tickets"},
			{"$JS.API.STREAM.UPDATE.RL_TICKETS", "change the limits of the stream"},
			{"$JS.API.STREAM.INFO.RL_TICKETS", "read the state of the stream of tickets"},
			{"$JS.API.CONSUMER.CREATE.RL_TICKETS.>", "create and change queues"},
			{"$JS.API.CONSUMER.INFO.RL_TICKETS.*", "read the state of a queue"},
			{"$JS.API.STREAM.CREATE.KV_RL_FLEET", "create the bucket of the fleet"},
			{"$JS.API.STREAM.UPDATE.KV_RL_FLEET", "change the limits of the bucket"},
			{"$JS.API.STREAM.PURGE.KV_RL_FLEET", "remove deleted keys of the bucket"},
		}
		publish = append(publish, shared()...)
		subscribe = []grant{
			{"_INBOX_RLG.>", "answers to gateways"},
			{"rl.presence", "receive announcements of workers"},
		}
	case Worker:
		publish = shared()
	default:
		return []grant{}, []grant{}
	}
	return publish, append(subscribe,
		grant{"_INBOX_RLW.>", "answers to workers, such as tickets"},
		grant{"rl.wake.*", "receive announcements of new tickets"},
		grant{"rl.revoke", "receive announcements of ended attempts"},
		grant{"rl.gateway", "receive announcements of gateways"},
	)
}

// permissionsOf returns the subjects that a role may publish to and subscribe to, which
// is all that it may do. Of a role that is none both are empty and not nil: to NATS an
// absent list allows everything.
func permissionsOf(role Role) (publish, subscribe []string) {
	pub, sub := grantsOf(role)
	return subjects(pub), subjects(sub)
}

func subjects(grants []grant) []string {
	all := make([]string, len(grants))
	for i, g := range grants {
		all[i] = g.Subject
	}
	return all
}
