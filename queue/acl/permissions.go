package acl

// Role is what a process is on the bus.
type Role string

// The roles. A process that is both takes the gateway's key.
const (
	Gateway Role = "gateway" // holds samples and publishes tickets
	Worker  Role = "worker"  // takes tickets and scores
)

// Roles returns all roles, the one that may do more first.
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
		{"$JS.API.CONSUMER.MSG.NEXT.RL_TICKETS.>", "ask for tickets"},
		{"$JS.ACK.RL_TICKETS.>", "keep, end or give back a ticket"},
		{"rl.presence", "workers announce themselves"},
		{"$KV.RL_FLEET.>", "write to the bucket of the fleet"},
		{"$JS.API.STREAM.INFO.KV_RL_FLEET", "open the bucket"},
		{"$JS.API.DIRECT.GET.KV_RL_FLEET.$KV.RL_FLEET.>", "read a key"},
		{"$JS.API.CONSUMER.CREATE.KV_RL_FLEET.>", "begin to watch the bucket"},
		{"$JS.API.CONSUMER.DELETE.KV_RL_FLEET.*", "end watching"},
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
			{"rl.wake.*", "tell workers that tickets come"},
			{"rl.revoke", "tell workers that an attempt is over"},
			{"rl.gateway", "gateways announce themselves"},
			{"$JS.API.INFO", "ask whether JetStream is there"},
			{"$JS.API.STREAM.CREATE.RL_TICKETS", "make the stream of tickets"},
			{"$JS.API.STREAM.UPDATE.RL_TICKETS", "change its bounds"},
			{"$JS.API.STREAM.INFO.RL_TICKETS", "look at it"},
			{"$JS.API.CONSUMER.CREATE.RL_TICKETS.>", "make and change queues"},
			{"$JS.API.CONSUMER.INFO.RL_TICKETS.*", "look at one"},
			{"$JS.API.STREAM.CREATE.KV_RL_FLEET", "make the bucket"},
			{"$JS.API.STREAM.UPDATE.KV_RL_FLEET", "change its bounds"},
			{"$JS.API.STREAM.PURGE.KV_RL_FLEET", "drop what was deleted in it"},
		}
		publish = append(publish, shared()...)
		subscribe = []grant{
			{"_INBOX_RLG.>", "answers to gateways"},
			{"rl.presence", "hear of workers"},
		}
	case Worker:
		publish = shared()
	default:
		return []grant{}, []grant{}
	}
	return publish, append(subscribe,
		grant{"_INBOX_RLW.>", "answers to workers, tickets among them"},
		grant{"rl.wake.*", "hear that tickets come"},
		grant{"rl.revoke", "hear of attempts that are over"},
		grant{"rl.gateway", "hear of gateways"},
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
